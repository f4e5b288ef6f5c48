"""Every dimension of the network, and its Hugging Face spelling.

Qwen3.5-MoE: three GatedDeltaNet layers to one gated-attention layer, each followed by routed experts and one
shared expert.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ModelShape:
    """Dimensions of a Qwen3.5-MoE text model. Counts are of heads, layers, experts; sizes are of channels."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    full_attention_interval: int
    num_attention_heads: int
    num_query_groups: int
    head_dim: int
    partial_rotary_factor: float
    rope_theta: float
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_expert_intermediate_size: int
    rms_norm_eps: float
    initializer_range: float
    max_position_embeddings: int
    eos_token_id: int | None = None
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        for multiple, divisor in (
            ("num_attention_heads", "num_query_groups"),
            ("linear_num_value_heads", "linear_num_key_heads"),
        ):
            many, few = getattr(self, multiple), getattr(self, divisor)
            if many % few:
                raise ValueError(f"{multiple}={many} is not a multiple of {divisor}={few}")
        if not 0 < self.num_experts_per_tok <= self.num_experts:
            raise ValueError(
                f"num_experts_per_tok={self.num_experts_per_tok} is not in 1..num_experts={self.num_experts}"
            )
        if self.rotary_dim % 2 or self.rotary_dim == 0:
            raise ValueError(
                f"head_dim={self.head_dim} times partial_rotary_factor={self.partial_rotary_factor} gives "
                f"{self.rotary_dim} rotated channels; they must be a positive even number"
            )

    @property
    def rotary_dim(self) -> int:
        """Channels of a head that RoPE turns."""
        return int(self.head_dim * self.partial_rotary_factor)

    def is_full_attention(self, layer: int) -> bool:
        """Whether layer `layer`, counted from 0, is gated attention (else GatedDeltaNet)."""
        return (layer + 1) % self.full_attention_interval == 0

    @classmethod
    def nano(cls, *, vocab_size: int, **overrides: Any) -> "ModelShape":
        """The laptop's shape: four layers of 128 channels, eight experts of which two serve a token.

        Its initializer_range is twice Hugging Face's default, which learns more slowly at this width.
        """
        values: dict[str, Any] = dict(
            vocab_size=vocab_size,
            hidden_size=128,
            num_layers=4,
            full_attention_interval=4,
            num_attention_heads=4,
            num_query_groups=2,
            head_dim=32,
            partial_rotary_factor=0.25,
            rope_theta=10000.0,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=32,
            linear_value_head_dim=32,
            linear_conv_kernel_dim=4,
            num_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            shared_expert_intermediate_size=64,
            rms_norm_eps=1e-6,
            initializer_range=0.02,
            max_position_embeddings=8192,
        )
        unknown = sorted(set(overrides) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(f"ModelShape has no field {unknown[0]!r}")
        return cls(**{**values, **overrides})

    @classmethod
    def from_hf(cls, directory: str | Path) -> "ModelShape":
        """Read `config.json` of a Qwen3.5-MoE checkpoint (text-only, or with a vision tower, which is
        passed over).
        """
        path = Path(directory) / "config.json"
        if not path.is_file():
            raise ValueError(f"{path} does not exist: give the directory of a Hugging Face checkpoint")
        config = json.loads(path.read_text())
        config = config.get("text_config") or config
        if config.get("model_type") != "qwen3_5_moe_text":
            raise ValueError(
                f"{path}: model_type is {config.get('model_type')!r}, expected 'qwen3_5_moe_text'"
            )
        if config.get("tie_word_embeddings"):
            raise ValueError(f"{path}: tie_word_embeddings is true, but this model keeps them apart")
        rope = config.get("rope_parameters") or config
        num_layers = config["num_hidden_layers"]
        interval = config.get("full_attention_interval") or _interval(config.get("layer_types"), path)
        eos = config.get("eos_token_id")
        return cls(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            num_layers=num_layers,
            full_attention_interval=interval,
            num_attention_heads=config["num_attention_heads"],
            num_query_groups=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            partial_rotary_factor=rope.get("partial_rotary_factor", 0.25),
            rope_theta=float(rope["rope_theta"]),
            linear_num_key_heads=config["linear_num_key_heads"],
            linear_num_value_heads=config["linear_num_value_heads"],
            linear_key_head_dim=config["linear_key_head_dim"],
            linear_value_head_dim=config["linear_value_head_dim"],
            linear_conv_kernel_dim=config["linear_conv_kernel_dim"],
            num_experts=config["num_experts"],
            num_experts_per_tok=config["num_experts_per_tok"],
            moe_intermediate_size=config["moe_intermediate_size"],
            shared_expert_intermediate_size=config["shared_expert_intermediate_size"],
            rms_norm_eps=config["rms_norm_eps"],
            initializer_range=config["initializer_range"],
            max_position_embeddings=config["max_position_embeddings"],
            eos_token_id=eos[0] if isinstance(eos, list) else eos,
            pad_token_id=config.get("pad_token_id"),
        )

    def hf_config(self) -> Any:
        """The same shape as a `transformers.Qwen3_5MoeTextConfig`."""
        from transformers import Qwen3_5MoeTextConfig

        return Qwen3_5MoeTextConfig(**self._hf_values())

    def write_config(self, directory: str | Path) -> None:
        """Write `config.json`. SGLang reads num_experts, full_attention_interval and rope_theta at the top
        level, which transformers' own writer leaves out or renames.
        """
        config = self.hf_config().to_dict()
        config.update(
            architectures=["Qwen3_5MoeForCausalLM"],
            num_experts=self.num_experts,
            full_attention_interval=self.full_attention_interval,
            rope_theta=self.rope_theta,
            partial_rotary_factor=self.partial_rotary_factor,
        )
        path = Path(directory) / "config.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

    def _hf_values(self) -> dict[str, Any]:
        layers = range(self.num_layers)
        return dict(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_query_groups,
            head_dim=self.head_dim,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": self.rope_theta,
                "partial_rotary_factor": self.partial_rotary_factor,
            },
            layer_types=[
                "full_attention" if self.is_full_attention(i) else "linear_attention" for i in layers
            ],
            linear_num_key_heads=self.linear_num_key_heads,
            linear_num_value_heads=self.linear_num_value_heads,
            linear_key_head_dim=self.linear_key_head_dim,
            linear_value_head_dim=self.linear_value_head_dim,
            linear_conv_kernel_dim=self.linear_conv_kernel_dim,
            num_experts=self.num_experts,
            num_experts_per_tok=self.num_experts_per_tok,
            moe_intermediate_size=self.moe_intermediate_size,
            shared_expert_intermediate_size=self.shared_expert_intermediate_size,
            rms_norm_eps=self.rms_norm_eps,
            initializer_range=self.initializer_range,
            max_position_embeddings=self.max_position_embeddings,
            tie_word_embeddings=False,
            eos_token_id=self.eos_token_id,
            pad_token_id=self.pad_token_id,
        )


def _interval(layer_types: list[str] | None, path: Path) -> int:
    """The attention interval that explains `layer_types`, 4 where the config is silent."""
    if layer_types is None:
        return 4
    interval = layer_types.index("full_attention") + 1
    expected = [
        "linear_attention" if (i + 1) % interval else "full_attention" for i in range(len(layer_types))
    ]
    if layer_types != expected:
        raise ValueError(
            f"{path}: layer_types is no regular alternation; only every n-th layer may be full attention"
        )
    return interval
