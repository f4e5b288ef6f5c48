"""95% intervals of means and of differences of means, by Student's t; NaN where the data can't give one."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95% interval, in the unit of the data."""

    estimate: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """False also where the interval is undefined."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.estimate:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def mean_interval(values: ArrayLike) -> Interval:
    """Mean of independent values; NaN bounds for fewer than two."""
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2:
        return Interval(float(data.mean()) if len(data) else math.nan, math.nan, math.nan)
    half = t_quantile(len(data) - 1) * data.std(ddof=1) / math.sqrt(len(data))
    return Interval(float(data.mean()), float(data.mean() - half), float(data.mean() + half))


def welch_interval(after: ArrayLike, *, before: ArrayLike) -> Interval:
    """Mean of `after` minus mean of `before`, independent samples of unequal variance (Welch-Satterthwaite)."""
    one, two = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if min(len(one), len(two)) < 1:
        return Interval(math.nan, math.nan, math.nan)
    estimate = float(two.mean() - one.mean())
    if min(len(one), len(two)) < 2:
        return Interval(estimate, math.nan, math.nan)
    a, b = one.var(ddof=1) / len(one), two.var(ddof=1) / len(two)
    if a + b == 0:
        return Interval(estimate, estimate, estimate)
    freedom = (a + b) ** 2 / (a**2 / (len(one) - 1) + b**2 / (len(two) - 1))
    half = t_quantile(freedom) * math.sqrt(a + b)
    return Interval(estimate, estimate - half, estimate + half)


@lru_cache(maxsize=512)
def t_quantile(freedom: float) -> float:
    """The t that a Student variable with `freedom` >= 1 degrees exceeds in absolute value with probability
    0.05.
    """
    assert freedom >= 1
    nodes, weights = np.polynomial.legendre.leggauss(200)
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)

    def within(t: float) -> float:
        x = t / 2 * (nodes + 1)
        density = np.exp(log_scale - (freedom + 1) / 2 * np.log1p(x * x / freedom))
        return float(t * (weights * density).sum())

    low, high = 0.0, 13.0  # 12.706 at one degree of freedom is the largest there is
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < LEVEL else (low, middle)
    return high
