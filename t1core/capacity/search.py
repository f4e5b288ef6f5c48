"""Whether a plan fits, what breaks it, and the plans nearest to it that fit."""

from dataclasses import dataclass

from t1core.capacity.memory import (
    Coefficients,
    Load,
    StageBytes,
    pair_bytes,
    role_bytes,
)
from t1core.capacity.plans import Plan, all_plans
from t1core.model.shape import ModelShape


@dataclass(frozen=True)
class Verdict:
    """One plan on GPUs of `limit_bytes`. admitted: for each of `USES`, a GPU's peak and the stage that makes it."""

    plan: Plan
    limit_bytes: float
    stages: tuple[StageBytes, ...]
    admitted: dict[str, tuple[float, StageBytes]]

    def fits(self, use: str) -> bool:
        return self.admitted[use][0] <= self.limit_bytes

    def breaking_term(self, use: str) -> str | None:
        """The term that breaks it in this use; "the other network" where each fits alone and both together do not."""
        peak, stage = self.admitted[use]
        if peak <= self.limit_bytes:
            return None
        return stage.breaking_term(self.limit_bytes) or "the other network"


USES = ("actor alone", "critic alone", "pair taking turns", "pair resident")


def judge(
    shape: ModelShape, plan: Plan, *, load: Load, coefficients: Coefficients, limit_bytes: float
) -> Verdict:
    """The verdict on a plan. ValueError where the shape cannot be cut so."""
    if problem := plan.problem(shape):
        raise ValueError(f"{plan}: {problem}")
    actor, critic = (
        role_bytes(shape, role=role, plan=plan, load=load, coefficients=coefficients)
        for role in ("actor", "critic")
    )
    alone = [max(((each.peak_bytes, each) for each in role), key=lambda x: x[0]) for role in (actor, critic)]
    pairs = [max(pair_bytes(actor, critic, offload=offload), key=lambda x: x[0]) for offload in (True, False)]
    return Verdict(
        plan=plan,
        limit_bytes=limit_bytes,
        stages=(*actor, *critic),
        admitted=dict(zip(USES, (*alone, *pairs), strict=True)),
    )


def fitting(
    shape: ModelShape,
    *,
    num_gpus: int,
    load: Load,
    coefficients: Coefficients,
    limit_bytes: float,
    use: str,
) -> list[Verdict]:
    """Every plan of so many GPUs that fits, least model parallelism first: what is left is data parallel."""
    verdicts = [
        judge(shape, plan, load=load, coefficients=coefficients, limit_bytes=limit_bytes)
        for plan in all_plans(shape, num_gpus=num_gpus)
    ]
    found = [verdict for verdict in verdicts if verdict.fits(use)]
    return sorted(found, key=lambda v: (v.plan.tp * v.plan.pp * v.plan.cp, v.plan.ep, v.admitted[use][0]))


def nearest(plan: Plan, among: list[Verdict], *, num: int = 3) -> list[Verdict]:
    """The plans that differ least from `plan`, in doublings of degrees; of equals the one with most room."""
    return sorted(
        among, key=lambda v: (v.plan.steps_from(plan), max(peak for peak, _ in v.admitted.values()))
    )[:num]
