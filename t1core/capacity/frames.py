"""The published capacity model as frames: terms of a GPU's memory by plan, and what expert parallelism does to them."""

from collections.abc import Mapping, Sequence

import pandas as pd

from t1core.capacity.memory import GIB
from t1core.capacity.plans import Plan
from t1core.capacity.published import closed_form
from t1core.capacity.throughput import best_split, split

TERMS = ("weights and gradients", "expert optimiser", "dense optimiser", "activations", "logits")


def plan_terms(plans: Mapping[str, Plan], *, wall: int, is_last: bool = True) -> pd.DataFrame:
    """A row a plan and term of the closed form, GiB; b0 is left out, which nothing published gives."""
    rows = [
        (name, term, closed_form(plan, wall=wall, is_last=is_last)[term] / GIB)
        for name, plan in plans.items()
        for term in TERMS
    ]
    return pd.DataFrame(rows, columns=["plan", "term", "gib"])


def expert_parallel_terms(plan: Plan, *, degrees: Sequence[int]) -> pd.DataFrame:
    """A row a degree of expert parallelism: the experts' optimiser states, which do not change, and weights with
    gradients, which do, GiB."""
    rows = []
    for ep in degrees:
        terms = closed_form(Plan(tp=plan.tp, pp=plan.pp, cp=plan.cp, ep=ep, dp=plan.dp))
        rows.append((ep, terms["expert optimiser"] / GIB, terms["weights and gradients"] / GIB))
    return pd.DataFrame(rows, columns=["ep", "optimiser_gib", "weights_gib"])


def split_curve(
    *, rollout: float, train: float, num_gpus: int, multiple: int = 1, tail: float = 0.0
) -> pd.DataFrame:
    """A row a number of sampling GPUs: rollout, train and step time, in the unit of `rollout` and `train` over GPUs,
    and whether it is the best."""
    best = best_split(
        rollout=rollout, train=train, num_gpus=num_gpus, multiple=multiple, tail=tail
    ).num_rollout
    rows = []
    for n in range(multiple, num_gpus, multiple):
        one = split(n, rollout=rollout, train=train, num_gpus=num_gpus, tail=tail)
        rows.append((n, one.rollout, one.train, one.step, n == best))
    return pd.DataFrame(rows, columns=["sampling", "rollout", "train", "step", "is_best"])
