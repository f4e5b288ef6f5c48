"""How many parameters a network has, by the way they are spread over ranks."""

from dataclasses import dataclass
from typing import Literal

from t1core.model import known
from t1core.model.known import QWEN3_5_35B_A3B, QWEN3_5_122B_A10B
from t1core.model.shape import ModelShape

Role = Literal["actor", "critic"]

NAMED = {"nano": ModelShape.nano(vocab_size=768), "35b": QWEN3_5_35B_A3B, "122b": QWEN3_5_122B_A10B}


def shape_of(model: str) -> ModelShape:
    """A shape by a short name, a published one, or a Hugging Face directory. ValueError where it is none of them."""
    if model in NAMED:
        return NAMED[model]
    try:
        return known.shape_of(model)
    except ValueError as error:
        raise ValueError(f"--model {model}: not one of {', '.join(NAMED)}, and {error}") from None


@dataclass(frozen=True)
class StageSizes:
    """Parameters of one pipeline stage before any other parallelism.

    experts: routed experts, spread over expert-parallel ranks. sharded: split over tensor-parallel ranks (projections,
    embedding, vocabulary head). replicated: whole on each of them (norms, router, the shared expert's gate, a value
    head).
    """

    experts: int
    sharded: int
    replicated: int

    @property
    def dense(self) -> int:
        return self.sharded + self.replicated

    @property
    def total(self) -> int:
        return self.experts + self.dense


def attention_size(shape: ModelShape) -> int:
    """Projections of one gated-attention layer: queries twice (with their gate), keys, values, output."""
    queries, groups = shape.num_attention_heads * shape.head_dim, shape.num_query_groups * shape.head_dim
    return shape.hidden_size * (2 * queries + 2 * groups + queries)


def delta_net_size(shape: ModelShape) -> int:
    """One GatedDeltaNet layer: projections of q, k, v, z, b, a and the output; convolution, A_log and dt_bias."""
    keys = shape.linear_num_key_heads * shape.linear_key_head_dim
    values, heads = shape.linear_num_value_heads * shape.linear_value_head_dim, shape.linear_num_value_heads
    projections = shape.hidden_size * (2 * keys + 2 * values + 2 * heads + values)
    return projections + (2 * keys + values) * shape.linear_conv_kernel_dim + 2 * heads


def expert_size(shape: ModelShape) -> int:
    """All routed experts of one layer."""
    return shape.num_experts * 3 * shape.hidden_size * shape.moe_intermediate_size


def stage_sizes(shape: ModelShape, *, role: Role, pp: int, stage: int) -> StageSizes:
    """What stage `stage` of `pp` holds: its layers, the embedding in the first, the head in the last."""
    layers = range(stage * shape.num_layers // pp, (stage + 1) * shape.num_layers // pp)
    hidden, sharded, replicated = shape.hidden_size, 0, 0
    for layer in layers:
        sharded += 3 * hidden * shape.shared_expert_intermediate_size
        replicated += 2 * hidden + shape.num_experts * hidden + hidden
        if shape.is_full_attention(layer):
            sharded += attention_size(shape)
            replicated += 2 * shape.head_dim
        else:
            sharded += delta_net_size(shape)
            replicated += shape.linear_value_head_dim
    if stage == 0:
        sharded += shape.vocab_size * hidden
    if stage == pp - 1:
        replicated += hidden
        if role == "actor":
            sharded += shape.vocab_size * hidden
        else:
            replicated += hidden + 1
    return StageSizes(experts=len(layers) * expert_size(shape), sharded=sharded, replicated=replicated)
