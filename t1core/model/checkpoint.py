"""Hugging Face checkpoint directories: reading one lazily, and writing a randomly initialised one."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from t1core.model.shape import ModelShape


def init_hf(shape: ModelShape, directory: str | Path, seed: int) -> None:
    """Write a randomly initialised checkpoint, fp32; the same bytes for the same seed."""
    write_hf(initial_state(shape, seed=seed), shape, directory)


def write_hf(state: Mapping[str, torch.Tensor], shape: ModelShape, directory: str | Path) -> None:
    """Write config.json and model.safetensors for a state with Hugging Face names."""
    shape.write_config(directory)
    save_file(dict(state), Path(directory) / "model.safetensors", metadata={"format": "pt"})


def initial_state(shape: ModelShape, *, seed: int) -> dict[str, torch.Tensor]:
    """Random weights under Hugging Face names.

    As transformers does it: matrices normal with deviation `initializer_range`, norms at the identity, decay rates A
    uniform in (0.01, 16), the time step's bias 1. With that bias a
    GatedDeltaNet head starts with the memory of about a token, which is what copying is learnt from first
    (docs/LOG.md has the numbers of the alternatives).
    """
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, torch.Tensor] = {}
    for name, size in hf_sizes(shape).items():
        if name.endswith("dt_bias") or name.endswith("linear_attn.norm.weight"):
            tensor = torch.ones(size)
        elif name.endswith("A_log"):
            tensor = torch.empty(size).uniform_(0.01, 16, generator=generator).log()
        elif len(size) == 1:
            tensor = torch.zeros(size)
        else:
            tensor = torch.empty(size).normal_(0.0, shape.initializer_range, generator=generator)
        state[name] = tensor
    return state


def hf_sizes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Name and size of every tensor in an actor's Hugging Face checkpoint."""
    hidden, experts, inner = shape.hidden_size, shape.num_experts, shape.moe_intermediate_size
    shared, heads, groups, dim = (
        shape.shared_expert_intermediate_size,
        shape.num_attention_heads,
        shape.num_query_groups,
        shape.head_dim,
    )
    keys = shape.linear_key_head_dim * shape.linear_num_key_heads
    value_heads = shape.linear_num_value_heads
    values = shape.linear_value_head_dim * value_heads
    attention = {
        "self_attn.q_proj.weight": (heads * 2 * dim, hidden),
        "self_attn.k_proj.weight": (groups * dim, hidden),
        "self_attn.v_proj.weight": (groups * dim, hidden),
        "self_attn.o_proj.weight": (hidden, heads * dim),
        "self_attn.q_norm.weight": (dim,),
        "self_attn.k_norm.weight": (dim,),
    }
    delta_net = {
        "linear_attn.in_proj_qkv.weight": (2 * keys + values, hidden),
        "linear_attn.in_proj_z.weight": (values, hidden),
        "linear_attn.in_proj_b.weight": (value_heads, hidden),
        "linear_attn.in_proj_a.weight": (value_heads, hidden),
        "linear_attn.conv1d.weight": (2 * keys + values, 1, shape.linear_conv_kernel_dim),
        "linear_attn.dt_bias": (value_heads,),
        "linear_attn.A_log": (value_heads,),
        "linear_attn.norm.weight": (shape.linear_value_head_dim,),
        "linear_attn.out_proj.weight": (hidden, values),
    }
    rest = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate.weight": (experts, hidden),
        "mlp.experts.gate_up_proj": (experts, 2 * inner, hidden),
        "mlp.experts.down_proj": (experts, hidden, inner),
        "mlp.shared_expert.gate_proj.weight": (shared, hidden),
        "mlp.shared_expert.up_proj.weight": (shared, hidden),
        "mlp.shared_expert.down_proj.weight": (hidden, shared),
        "mlp.shared_expert_gate.weight": (1, hidden),
    }
    sizes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (shape.vocab_size, hidden)}
    for layer in range(shape.num_layers):
        mixer = attention if shape.is_full_attention(layer) else delta_net
        sizes.update({f"model.layers.{layer}.{name}": size for name, size in {**mixer, **rest}.items()})
    return sizes | {"model.norm.weight": (hidden,), "lm_head.weight": (shape.vocab_size, hidden)}


class HfDirectory(Mapping[str, torch.Tensor]):
    """The tensors of a checkpoint directory, read when asked for, under text-model names.

    A checkpoint with a vision tower spells `model.language_model.`; the tower itself and multi-token
    prediction are hidden.
    """

    def __init__(self, directory: str | Path) -> None:
        files = sorted(Path(directory).glob("*.safetensors"))
        if not files:
            raise ValueError(
                f"{directory} holds no .safetensors file: give the directory of a Hugging Face checkpoint"
            )
        self._place: dict[str, tuple[Path, str]] = {}
        for file in files:
            with safe_open(file, framework="pt") as tensors:
                for stored in tensors.keys():  # noqa: SIM118 - not a mapping
                    name = stored.replace("model.language_model.", "model.", 1)
                    if not name.startswith(("model.visual.", "mtp.")):
                        self._place[name] = (file, stored)

    def __getitem__(self, name: str) -> torch.Tensor:
        file, stored = self._place[name]
        with safe_open(file, framework="pt") as tensors:
            return tensors.get_tensor(stored)

    def __iter__(self) -> Iterator[str]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)
