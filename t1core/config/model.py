"""The policy, its critic and how both get their start."""

import os
from typing import Literal, Self

from pydantic import Field, model_validator

from t1core.config.section import Settings


def _is_one_directory(first: str, second: str) -> bool:
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    return os.path.exists(first) and os.path.exists(second) and os.path.samefile(first, second)


class ModelSettings(Settings):
    actor_path: str = ""
    """Hugging Face directory of the starting policy. Empty: the warm-started nano model, made on first use."""
    critic_path: str = ""
    """Directory of a warmed critic (weights only). Empty: the critic made with the nano model. "cold": the actor's
    backbone with a zero value head."""
    hidden_size: int = Field(128, ge=32)
    """Width of the nano model; read only when `actor_path` is empty."""
    num_layers: int = Field(4, ge=4, multiple_of=4)
    """Layers of the nano model: three GatedDeltaNet layers to one gated-attention layer."""
    num_experts: int = Field(8, ge=2)
    """Routed experts a layer of the nano model."""
    num_experts_per_tok: int = Field(2, ge=1)
    """Experts chosen a token."""
    moe_intermediate_size: int = Field(64, ge=16)
    """Width of each expert and of the shared expert."""
    num_attention_heads: int = Field(4, ge=1)
    """Query heads of a gated-attention layer of the nano model."""
    num_query_groups: int = Field(2, ge=1)
    """Key and value heads of a gated-attention layer; must divide the query heads."""
    head_dim: int = Field(32, ge=16, multiple_of=8)
    """Channels of each of them."""
    linear_num_key_heads: int = Field(2, ge=1)
    """Key heads of a GatedDeltaNet layer of the nano model."""
    linear_num_value_heads: int = Field(4, ge=1)
    """Value heads of a GatedDeltaNet layer; a multiple of its key heads."""
    linear_head_dim: int = Field(32, ge=16, multiple_of=16)
    """Channels of each of them."""
    max_position_embeddings: int = Field(8192, ge=512)
    """Tokens of the longest row that engines take from the nano model."""
    vocab_size: int = Field(768, ge=384)
    """Size of the byte-level BPE trained on the practice pool's demonstrations."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.actor_path and self.critic_path and _is_one_directory(self.actor_path, self.critic_path):
            raise ValueError(
                f"critic_path={self.critic_path!r} is actor_path={self.actor_path!r} by another spelling: one would "
                'overwrite the other; give the critic a directory of its own, or "cold"'
            )
        return self


class WarmStartSettings(Settings):
    """How the nano policy and its critic are made. Changing anything here makes new ones."""

    seed: int = 0
    """Seed of the weights and of the demonstrations."""
    supervised_steps: int = Field(480, ge=1)
    """Optimiser steps on demonstrations; stopped early on purpose, so that there is room to learn."""
    idle_steps: int = Field(36, ge=0)
    """Last steps, in which `idle_share` of the demonstrations claim completion having done nothing."""
    idle_share: float = Field(0.6, ge=0, lt=1)
    """Share of demonstrations in the last `idle_steps` that claim completion having done nothing. It leaves the
    policy a habit for PPO to unlearn: a model this small has no other fault that a few thousand trials can mend."""
    copying_steps: int = Field(160, ge=0)
    """First steps in which most rows are word lists to repeat: copying a name is the skill the tasks rest on, and a
    model this small finds it in dense lists long before it finds it in dialogues."""
    first_turn_steps: int = Field(274, ge=0)
    """Steps up to which most dialogues end with the first answer: short rows, each with commands to get right."""
    supervised_tokens: int = Field(3072, ge=512)
    """Tokens a supervised step."""
    supervised_lr: float = Field(2e-3, gt=0)
    """Peak learning rate of the supervised phase."""
    supervised_precision: Literal["fp32", "bf16"] = "fp32"
    """Weights in the supervised phase. bf16 on a GPU takes the fused kernels."""
    critic_warmup_steps: int = Field(24, ge=0)
    """Actor-critic steps on the easy tasks; of the result only the critic is kept."""
    critic_warmup_batch: int = Field(40, ge=1)
    """Trials a step of the critic's warm-up."""
