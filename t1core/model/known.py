"""Published models whose shape is known without their files."""

import dataclasses
from pathlib import Path

from t1core.model.shape import ModelShape

QWEN3_5_122B_A10B = ModelShape(
    vocab_size=248_320,
    hidden_size=3072,
    num_layers=48,
    full_attention_interval=4,
    num_attention_heads=32,
    num_query_groups=2,
    head_dim=256,
    partial_rotary_factor=0.25,
    rope_theta=1e7,
    linear_num_key_heads=16,
    linear_num_value_heads=64,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    linear_conv_kernel_dim=4,
    num_experts=256,
    num_experts_per_tok=8,
    moe_intermediate_size=1024,
    shared_expert_intermediate_size=1024,
    rms_norm_eps=1e-6,
    initializer_range=0.02,
    max_position_embeddings=262_144,
)
"""As its model card and configuration give it, the vision tower and the multi-token prediction layer left out."""

QWEN3_5_35B_A3B = dataclasses.replace(
    QWEN3_5_122B_A10B,
    hidden_size=2048,
    num_layers=40,
    num_attention_heads=16,
    linear_num_value_heads=32,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
)
"""The defaults of transformers' configuration of this architecture."""

KNOWN = {"Qwen3.5-122B-A10B": QWEN3_5_122B_A10B, "Qwen3.5-35B-A3B": QWEN3_5_35B_A3B}


def shape_of(directory: str) -> ModelShape:
    """The shape of a Hugging Face directory, or of a published model named like one that is not here."""
    path = Path(directory)
    if (path / "config.json").is_file():
        return ModelShape.from_hf(path)
    if path.name in KNOWN:
        return KNOWN[path.name]
    raise ValueError(
        f"{directory!r} is no Hugging Face directory here, nor a model whose shape is known ({', '.join(KNOWN)})"
    )
