"""Bytes of one GPU by term: what a stage of actor or critic holds, and what a micro-batch adds to it at its peak.

Static terms follow from how t1core shards: experts over ep, projections over tp, optimiser states over the data- and
context-parallel ranks that share a weight. What a micro-batch adds is alpha bytes a token (the largest layer's working
set), each layer's input, kept for recomputation, and logits, a block's or all; the optimiser's step, later, has
temporaries of its own. b0 is what is there before a model is. alpha, b0 and the bytes a logit takes are measured
(`t1 calibrate`) or taken from what T1 published.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from t1core.capacity.plans import Plan
from t1core.capacity.sizes import Role, stage_sizes
from t1core.model.scoring_block import tokens_at_once
from t1core.model.shape import ModelShape

KIB, GIB = 2**10, 2**30
_GRADIENT_BYTES = 4
_WEIGHT_BYTES = {"bf16": 2, "fp32": 4}
_OPTIMISER_BYTES = {"bf16": 12, "fp32": 8}  # Adam's two moments in fp32, and the fp32 copy of a bf16 weight
_HIDDEN_COPIES = (
    4  # around scoring: the last layer's output, its norm, that once more by token, and the gradient
)
DYNAMIC = ("layer inputs", "activations", "logits", "optimiser step")


@dataclass(frozen=True)
class Coefficients:
    """What arithmetic cannot say. phases: whether the largest layer and the logits are at their peak together (their
    sum counts, as T1 has it) or apart (the larger one counts, as measured here). scored: whether the logits of a whole
    micro-batch are there at once or a block's. step_bytes: temporaries of the optimiser's step for each parameter that
    it holds (torch's Adam on a GPU: 4, one fp32 copy). source: where all this comes from.
    """

    alpha_bytes: float
    b0_bytes: float
    logit_bytes: float
    phases: Literal["together", "apart"]
    step_bytes: float
    source: str
    scored: Literal["whole", "blocks"] = "whole"


PUBLISHED = Coefficients(
    alpha_bytes=328 * KIB,
    b0_bytes=1.6 * GIB,
    logit_bytes=6,
    phases="together",
    step_bytes=4,
    source="T1: 10.57 GiB at 33,792 tokens, 6 B a logit; b0 derived from one crash under one reading, not published",
)


@dataclass(frozen=True)
class Load:
    """What is trained on: tokens of the longest row (`wall`), tokens of a micro-batch on one GPU at most
    (`max_tokens`), how weights are kept, and whether layers are recomputed in backward.
    """

    wall: int
    max_tokens: int = 1
    precision: Literal["bf16", "fp32"] = "bf16"
    recompute: bool = True

    def tokens(self, plan: Plan) -> int:
        """Tokens of the largest micro-batch on one GPU: a row cannot be cut but by context parallelism."""
        return max(self.max_tokens, math.ceil(self.wall / plan.cp))


@dataclass(frozen=True)
class StageBytes:
    """Bytes by term of one GPU of one stage; `peak_bytes` counts what is there at the same time."""

    role: Role
    stage: int
    terms: Mapping[str, float]
    phases: Literal["together", "apart"]

    @property
    def static_bytes(self) -> float:
        return sum(size for term, size in self.terms.items() if term not in (*DYNAMIC, "b0"))

    @property
    def peak_bytes(self) -> float:
        return self.without(None)

    def without(self, term: str | None) -> float:
        """The peak if one term were not there."""
        terms = {name: 0.0 if name == term else size for name, size in self.terms.items()}
        both = terms["activations"], terms["logits"]
        pass_bytes = terms["layer inputs"] + (sum(both) if self.phases == "together" else max(both))
        static = sum(size for name, size in terms.items() if name not in DYNAMIC)
        return static + max(pass_bytes, terms["optimiser step"])

    def breaking_term(self, limit_bytes: float) -> str | None:
        """The largest term without which the stage would fit; where there is none, the largest of all."""
        if self.peak_bytes <= limit_bytes:
            return None
        by_size = sorted(self.terms, key=lambda name: -self.terms[name])
        alone = [name for name in by_size if self.without(name) <= limit_bytes]
        return (alone or by_size)[0]


def stage_bytes(
    shape: ModelShape,
    *,
    role: Role,
    plan: Plan,
    stage: int,
    load: Load,
    coefficients: Coefficients,
) -> StageBytes:
    """One stage of one role under t1core's sharding."""
    sizes = stage_sizes(shape, role=role, pp=plan.pp, stage=stage)
    dense = sizes.sharded / plan.tp + sizes.replicated
    weight, optimiser = _WEIGHT_BYTES[load.precision], _OPTIMISER_BYTES[load.precision]
    tokens = load.tokens(plan)
    num_layers, in_flight = shape.num_layers // plan.pp, plan.pp - stage
    is_last = stage == plan.pp - 1
    kept = num_layers * in_flight
    return StageBytes(
        role=role,
        stage=stage,
        phases=coefficients.phases,
        terms={
            "expert weights": weight * sizes.experts / plan.ep,
            "dense weights": weight * dense,
            "expert gradients": _GRADIENT_BYTES * sizes.experts / plan.ep,
            "dense gradients": _GRADIENT_BYTES * dense,
            "expert optimiser": expert_optimiser_bytes(sizes.experts, plan=plan, each=optimiser),
            "dense optimiser": optimiser * dense / (plan.cp * plan.dp),
            "layer inputs": kept * shape.hidden_size * weight * tokens / plan.tp if load.recompute else 0.0,
            "activations": coefficients.alpha_bytes * tokens * (1 if load.recompute else kept),
            "logits": _scoring_bytes(
                shape, tokens=tokens, tp=plan.tp, weight=weight, coefficients=coefficients
            )
            if is_last and role == "actor"
            else 0.0,
            "optimiser step": coefficients.step_bytes
            * (sizes.experts / plan.stage_ranks + dense / (plan.cp * plan.dp)),
            "b0": coefficients.b0_bytes,
        },
    )


def _scoring_bytes(
    shape: ModelShape, *, tokens: int, tp: int, weight: int, coefficients: Coefficients
) -> float:
    """What scoring takes at its peak. In blocks: a block's logits, the last hidden states and their gradient, of all
    tokens on each rank, and over several blocks the sum of the vocabulary's gradient, in fp32.
    """
    shard = shape.vocab_size / tp
    if coefficients.scored == "whole":
        return coefficients.logit_bytes * shard * tokens
    block = tokens_at_once(math.ceil(shard))
    hidden = _HIDDEN_COPIES * weight * shape.hidden_size * tokens
    summed = _GRADIENT_BYTES * shard * shape.hidden_size if tokens > block else 0.0
    return coefficients.logit_bytes * shard * min(tokens, block) + hidden + summed


def expert_optimiser_bytes(experts: int, *, plan: Plan, each: int = 12) -> float:
    """Of one rank. experts / ep parameters lie on a rank, and tp * cp * dp / ep ranks share their states: ep
    cancels, and with a stage's share of experts of 1 / pp what is left is `each` * all experts / GPUs.
    """
    return each * (experts / plan.ep) / (plan.stage_ranks / plan.ep)


def role_bytes(
    shape: ModelShape, *, role: Role, plan: Plan, load: Load, coefficients: Coefficients
) -> list[StageBytes]:
    """Every stage of a role."""
    return [
        stage_bytes(shape, role=role, plan=plan, stage=stage, load=load, coefficients=coefficients)
        for stage in range(plan.pp)
    ]


def pair_bytes(
    actor: list[StageBytes], critic: list[StageBytes], *, offload: bool
) -> list[tuple[float, StageBytes]]:
    """(peak of a GPU, the role's stage that makes it) of each stage that holds actor and critic. With `offload` they
    take turns, and only the larger one counts; else what is static of the other stays beside it.
    """
    pairs = []
    for stages in zip(actor, critic, strict=True):
        beside = {
            mine.role: 0.0 if offload else other.static_bytes for mine, other in (stages, reversed(stages))
        }
        pairs.append(
            max(((mine.peak_bytes + beside[mine.role], mine) for mine in stages), key=lambda x: x[0])
        )
    return pairs


def route_bytes(shape: ModelShape, *, bytes_per_id: int) -> int:
    """Bytes of one token's routes: T1 stores int32 (4), t1core uint8 (1) for up to 256 experts."""
    return shape.num_layers * shape.num_experts_per_tok * bytes_per_id


@dataclass(frozen=True)
class HostLoad:
    """What one host carries beside its GPUs. Boxes: all of a step's, spread over hosts."""

    gpus_per_host: int = 8
    num_hosts: int = 1
    num_boxes: int = 0
    box_bytes: int = 0
    batch_tokens: int = 0
    num_snapshots: int = 2


def host_bytes(
    shape: ModelShape, *, plan: Plan, load: Load, host: HostLoad, offload: bool
) -> dict[str, float]:
    """Bytes of one host by term: states of actor and critic that lie there while they swap, behaviour snapshots of the
    actor, boxes, and a batch's routes. Ranks are counted as if each held the largest stage.
    """
    weight, optimiser = _WEIGHT_BYTES[load.precision], _OPTIMISER_BYTES[load.precision]
    learners = {
        role: max(
            weight * _on_rank(shape, role, plan, stage) + optimiser * _optimised(shape, role, plan, stage)
            for stage in range(plan.pp)
        )
        for role in ("actor", "critic")
    }
    copies = max(weight * _on_rank(shape, "actor", plan, stage) for stage in range(plan.pp))
    return {
        "offloaded actor": host.gpus_per_host * learners["actor"] if offload else 0.0,
        "offloaded critic": host.gpus_per_host * learners["critic"] if offload else 0.0,
        "behaviour snapshots": host.gpus_per_host * host.num_snapshots * copies,
        "boxes": math.ceil(host.num_boxes / host.num_hosts) * host.box_bytes,
        "routes of a batch": float(host.batch_tokens * route_bytes(shape, bytes_per_id=1)),
    }


def _on_rank(shape: ModelShape, role: Role, plan: Plan, stage: int) -> float:
    sizes = stage_sizes(shape, role=role, pp=plan.pp, stage=stage)
    return sizes.experts / plan.ep + sizes.sharded / plan.tp + sizes.replicated


def _optimised(shape: ModelShape, role: Role, plan: Plan, stage: int) -> float:
    sizes = stage_sizes(shape, role=role, pp=plan.pp, stage=stage)
    dense = sizes.sharded / plan.tp + sizes.replicated
    return sizes.experts / plan.stage_ranks + dense / (plan.cp * plan.dp)
