"""Plans: how a number of GPUs is cut into tensor, pipeline, context, expert and data parallelism."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from t1core.model.shape import ModelShape


@dataclass(frozen=True)
class Plan:
    """Degrees of one learner. Experts are spread over the tp * cp * dp ranks of a pipeline stage."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1

    def __str__(self) -> str:
        return " ".join(f"{field.name.upper()}={getattr(self, field.name)}" for field in fields(self))

    @property
    def num_gpus(self) -> int:
        return self.tp * self.pp * self.cp * self.dp

    @property
    def stage_ranks(self) -> int:
        return self.tp * self.cp * self.dp

    def problem(self, shape: ModelShape) -> str | None:
        """Why this shape cannot be cut so; None if it can."""
        for name in ("tp", "pp", "cp", "ep", "dp"):
            if getattr(self, name) < 1:
                return f"{name}={getattr(self, name)} must be at least 1"
        for field, by in (
            ("num_query_groups", "tp"),
            ("linear_num_key_heads", "tp"),
            ("vocab_size", "tp"),
            ("shared_expert_intermediate_size", "tp"),
            ("num_layers", "pp"),
            ("num_experts", "ep"),
        ):
            if getattr(shape, field) % getattr(self, by):
                return f"{field}={getattr(shape, field)} is not a multiple of {by}={getattr(self, by)}"
        if self.stage_ranks % self.ep:
            return (
                f"ep={self.ep} does not divide the tp*cp*dp={self.stage_ranks} ranks of a stage: it is at most "
                f"{widest_ep(shape, stage_ranks=self.stage_ranks)} there"
            )
        return None

    def steps_from(self, other: "Plan") -> float:
        """How far two plans lie apart, in doublings of degrees."""
        return sum(
            abs(math.log2(getattr(self, field.name) / getattr(other, field.name))) for field in fields(self)
        )


def widest_ep(shape: ModelShape, *, stage_ranks: int) -> int:
    """The most ranks that experts can be spread over."""
    return math.gcd(shape.num_experts, stage_ranks)


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def all_plans(shape: ModelShape, *, num_gpus: int) -> Iterator[Plan]:
    """Every plan of exactly so many GPUs that the shape can be cut by."""
    for tp in divisors(math.gcd(num_gpus, math.gcd(shape.num_query_groups, shape.linear_num_key_heads))):
        for pp in divisors(math.gcd(num_gpus // tp, shape.num_layers)):
            for cp in divisors(num_gpus // (tp * pp)):
                dp = num_gpus // (tp * pp * cp)
                for ep in divisors(widest_ep(shape, stage_ranks=tp * cp * dp)):
                    yield Plan(tp=tp, pp=pp, cp=cp, ep=ep, dp=dp)
