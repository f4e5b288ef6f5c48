"""How well values predict returns, from moments that add up over ranks before any division (T1 eq. 19).

    EV  = 1 - Var[R - V] / Var[R]         R^2 = 1 - E[(R - V)^2] / Var[R]        bias = E[V - R]

Averaging the EVs of ranks is another, biased number; sum the moments instead. Where returns do not vary EV
and R^2 are undefined: NaN, never 0.
"""

from dataclasses import dataclass

import torch

_RELATIVE_VARIANCE_FLOOR = 1e-12


@dataclass(frozen=True)
class ValueMoments:
    """Sums over tokens, as floats: how many, R, R^2, V, V^2, R V. Add two with `+`."""

    count: float
    returns: float
    returns_squared: float
    values: float
    values_squared: float
    cross: float

    def __add__(self, other: "ValueMoments") -> "ValueMoments":
        return ValueMoments(*(a + b for a, b in zip(self.astuple(), other.astuple(), strict=True)))

    def astuple(self) -> tuple[float, ...]:
        return (self.count, self.returns, self.returns_squared, self.values, self.values_squared, self.cross)


def value_moments(values: torch.Tensor, *, returns: torch.Tensor, mask: torch.Tensor) -> ValueMoments:
    """Moments over the trainable tokens, in double precision. All tensors [T]."""
    kept = mask.bool()
    r, v = returns[kept].double(), values[kept].double()
    return ValueMoments(
        count=float(len(r)),
        returns=float(r.sum()),
        returns_squared=float((r * r).sum()),
        values=float(v.sum()),
        values_squared=float((v * v).sum()),
        cross=float((r * v).sum()),
    )


def explained_variance(moments: ValueMoments) -> float:
    """EV; insensitive to a constant offset of the values, unlike R^2."""
    variance = _return_variance(moments)
    if variance is None:
        return float("nan")
    error = _mean_squared_error(moments) - value_bias(moments) ** 2
    return 1.0 - max(error, 0.0) / variance


def r_squared(moments: ValueMoments) -> float:
    """1 - mean squared error / variance of the returns."""
    variance = _return_variance(moments)
    return float("nan") if variance is None else 1.0 - _mean_squared_error(moments) / variance


def value_bias(moments: ValueMoments) -> float:
    """E[V] - E[R]; NaN without tokens."""
    return (moments.values - moments.returns) / moments.count if moments.count else float("nan")


def conditional_mean_predictor(
    targets: torch.Tensor, *, groups: torch.Tensor, weights: torch.Tensor, leave_one_out: bool
) -> torch.Tensor:
    """What a predictor that knows only a row's group would say: the weighted mean target of the group.
    float64 [R].

    targets float [R], groups int64 [R], weights float [R] (say, trainable tokens of the row). In sample
    (`leave_one_out=False`) a row's own target is part of its group's mean, which flatters the predictor: a
    group of one is predicted perfectly. With `leave_one_out` the row itself is left out of its mean, and a
    row alone in its group gets the mean over all other rows; a lone row in the batch gets NaN.
    """
    target, weight = targets.double(), weights.double()
    _, group = groups.unique(return_inverse=True)
    num_groups = int(group.max()) + 1 if len(group) else 0
    sums = torch.zeros(num_groups, dtype=torch.float64, device=targets.device).index_add_(
        0, group, target * weight
    )
    totals = torch.zeros_like(sums).index_add_(0, group, weight)
    if not leave_one_out:
        return (sums / totals)[group]
    own_sum, own_total = sums[group] - target * weight, totals[group] - weight
    rest_sum, rest_total = (target * weight).sum() - target * weight, weight.sum() - weight
    is_alone = torch.bincount(group, minlength=num_groups)[group] == 1
    is_alone = is_alone | (own_total <= 0)
    return torch.where(is_alone, rest_sum / rest_total, own_sum / own_total)


def _return_variance(moments: ValueMoments) -> float | None:
    if not moments.count:
        return None
    mean = moments.returns / moments.count
    second = moments.returns_squared / moments.count
    variance = second - mean * mean
    return variance if variance > _RELATIVE_VARIANCE_FLOOR * max(second, 1e-300) else None


def _mean_squared_error(moments: ValueMoments) -> float:
    return (moments.returns_squared - 2.0 * moments.cross + moments.values_squared) / moments.count
