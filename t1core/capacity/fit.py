"""Coefficients from measured peaks, and how well they predict others.

A critic's peak beyond what arithmetic gives is a line in tokens: alpha T + b0, so alpha and b0 come from critics. The
bytes of a logit come from scoring alone: what a block's scoring takes is mostly hidden by an actor's layers. Actors are
predicted, and show whether both are right.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from t1core.capacity.memory import Coefficients, Load, stage_bytes
from t1core.capacity.plans import Plan
from t1core.capacity.sizes import Role
from t1core.model.shape import ModelShape


@dataclass(frozen=True)
class Measured:
    """The peak of one network on one GPU with one row of `tokens` tokens."""

    role: Role
    num_layers: int
    tokens: int
    peak_bytes: int


def predicted_bytes(
    shape: ModelShape,
    measured: Measured,
    coefficients: Coefficients,
    *,
    precision: Literal["bf16", "fp32"],
) -> float:
    """What the model of memory says of a measured configuration; `shape` has its number of layers."""
    assert shape.num_layers == measured.num_layers
    load = Load(wall=measured.tokens, precision=precision)
    return stage_bytes(
        shape, role=measured.role, plan=Plan(), stage=0, load=load, coefficients=coefficients
    ).peak_bytes


def fit(
    measured: Sequence[tuple[ModelShape, Measured]],
    *,
    precision: Literal["bf16", "fp32"],
    logit_bytes: float,
    step_bytes: float,
    source: str,
) -> Coefficients:
    """Least squares over critics. ValueError where they cannot tell the coefficients apart."""
    nothing = Coefficients(0, 0, 0, phases="apart", step_bytes=0, source="", scored="blocks")
    known = [predicted_bytes(shape, each, nothing, precision=precision) for shape, each in measured]
    points = [
        (shape, each, each.peak_bytes - base) for (shape, each), base in zip(measured, known, strict=True)
    ]
    critics = [(each.tokens, extra) for _, each, extra in points if each.role == "critic"]
    if len({tokens for tokens, _ in critics}) < 2:
        raise ValueError("alpha and b0 need critics of two lengths at least: give more --tokens")
    mean_t = sum(t for t, _ in critics) / len(critics)
    mean_y = sum(y for _, y in critics) / len(critics)
    alpha = sum((t - mean_t) * (y - mean_y) for t, y in critics) / sum((t - mean_t) ** 2 for t, _ in critics)
    b0 = mean_y - alpha * mean_t
    return Coefficients(
        alpha, b0, logit_bytes, phases="apart", step_bytes=step_bytes, source=source, scored="blocks"
    )


def residuals(
    measured: Sequence[tuple[ModelShape, Measured]],
    coefficients: Coefficients,
    *,
    precision: Literal["bf16", "fp32"],
) -> list[dict[str, Any]]:
    """Each configuration with its predicted peak, and by what share of the measured one it is off."""
    rows = []
    for shape, each in measured:
        predicted = predicted_bytes(shape, each, coefficients, precision=precision)
        rows.append(
            asdict(each) | {"predicted_bytes": predicted, "residual_frac": predicted / each.peak_bytes - 1}
        )
    return rows
