"""What a server must hold after an update: each of its parameters, made of the tensors that were sent.

SGLang fuses projections that share an input and pads the vocabulary; the check of a publication compares hashes of its
parameters, as `serve.py` has the server take them, with those of the tensors fused here. It holds for servers without
tensor parallelism.
"""

import hashlib
from collections.abc import Callable, Mapping

import torch

_VOCABULARY_MULTIPLE = 64
_IN_FP32 = ("A_log",)
# Fused parameter, in the module of its parts -> the parts in the order in which they lie in it.
_FUSED = {
    "qkv_proj.weight": ("q_proj.weight", "k_proj.weight", "v_proj.weight"),
    "gate_up_proj.weight": ("gate_proj.weight", "up_proj.weight"),
    "in_proj_qkvz.weight": ("in_proj_qkv.weight", "in_proj_z.weight"),
    "in_proj_ba.weight": ("in_proj_b.weight", "in_proj_a.weight"),
}
_PART_OF = {part: fused for fused, parts in _FUSED.items() for part in parts}
_RENAMED = {"experts.gate_up_proj": "experts.w13_weight", "experts.down_proj": "experts.w2_weight"}


def as_stored(tensors: Mapping[str, torch.Tensor], *, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The tensors in the types in which a server of `dtype` keeps them."""
    return {
        name: tensor.to(torch.float32 if name.endswith(_IN_FP32) else dtype)
        for name, tensor in tensors.items()
    }


def expected_hashes(stored: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """SGLang's name of each parameter that the tensors (Hugging Face names, experts stacked) fill -> its hash."""
    hashes: dict[str, str] = {}
    for name, tensor in stored.items():
        leaf = ".".join(name.split(".")[-2:])
        fused = _PART_OF.get(leaf)
        if fused is not None:
            if leaf != _FUSED[fused][0]:
                continue
            module = name.removesuffix(leaf)
            name, tensor = module + fused, torch.cat([stored[module + part] for part in _FUSED[fused]])
        hashes[_server_name(name)] = content_hash(_padded(name, tensor))
    return hashes


def wrong_parameters(expected: Mapping[str, str], held: Mapping[str, str]) -> list[str]:
    """Names that the server lacks, or holds with other content."""
    return sorted(name for name, digest in expected.items() if held.get(name) != digest)


def content_hash(tensor: torch.Tensor) -> str:
    """The hash that SGLang takes of a tensor in host memory: the first 16 hexadecimal digits of its bytes' SHA-256."""
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(memoryview(raw)).hexdigest()[:16]


def _server_name(name: str) -> str:
    for ours, theirs in _RENAMED.items():
        name = name.replace(ours, theirs)
    return name.replace(".self_attn.", ".")


def _padded(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Embeddings and head, with rows of zeros up to a multiple of 64."""
    if name not in ("model.embed_tokens.weight", "lm_head.weight"):
        return tensor
    missing = -len(tensor) % _VOCABULARY_MULTIPLE
    return torch.cat([tensor, tensor.new_zeros(missing, tensor.shape[1])])


def stack_experts(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Experts that come one by one become `experts.gate_up_proj` [E, 2I, H] and `experts.down_proj` [E, H, I]."""
    stacked: dict[str, torch.Tensor] = {}
    apart: dict[str, dict[int, dict[str, torch.Tensor]]] = {}
    for name, tensor in tensors.items():
        prefix, is_expert, rest = name.partition(".experts.")
        number, _, leaf = rest.partition(".")
        if is_expert and number.isdigit():
            apart.setdefault(prefix, {}).setdefault(int(number), {})[leaf] = tensor
        else:
            stacked[name] = tensor
    take: dict[str, Callable[[dict[str, torch.Tensor]], torch.Tensor]] = {
        "gate_up_proj": lambda e: torch.cat([e["gate_proj.weight"], e["up_proj.weight"]]),
        "down_proj": lambda e: e["down_proj.weight"],
    }
    for prefix, experts in apart.items():
        for leaf, of in take.items():
            stacked[f"{prefix}.experts.{leaf}"] = torch.stack([of(experts[i]) for i in sorted(experts)])
    return stacked
