"""How much of a score is luck: standard errors of a share of solved tasks, and the gains that such a score can show.

With p the mean over tasks of the chance to solve one, and v the variance of these chances between tasks, a score of n
tasks with k attempts each has the variance

    fixed tasks    (p (1 - p) - v) / (n k)       the benchmark is these tasks
    drawn tasks    that + v / n                  the tasks stand for others like them

With v = 0 (all tasks equally hard) the two are the binomial's p (1 - p) / (n k).
"""

import math
from statistics import NormalDist

import numpy as np
import pandas as pd

_NORMAL = NormalDist()
_TWO_SIDED = _NORMAL.inv_cdf(0.975)


def score_se(p: float, *, tasks: int, attempts: int = 1, between: float = 0.0, drawn: bool = False) -> float:
    """Standard error of a share of solved tasks. `between` is v; ValueError above p (1 - p), which no tasks have."""
    if not 0 <= between <= p * (1 - p) + 1e-12:
        raise ValueError(
            f"between={between}: the chances of tasks vary by p (1 - p) = {p * (1 - p):.4f} at most"
        )
    within = max(0.0, p * (1 - p) - between) / (tasks * attempts)
    return math.sqrt(within + (between / tasks if drawn else 0.0))


def power(gain: float, *, se: float) -> float:
    """Chance that two scores, each with standard error `se`, differ at the 5% level when one is better by `gain`."""
    shift = gain / (math.sqrt(2) * se)
    return _NORMAL.cdf(shift - _TWO_SIDED) + _NORMAL.cdf(-shift - _TWO_SIDED)


def smallest_gain(*, se: float, power: float = 0.8) -> float:
    """The gain that two scores with standard error `se` show with the given chance."""
    return (_TWO_SIDED + _NORMAL.inv_cdf(power)) * math.sqrt(2) * se


def noise_table(
    p: float, *, tasks: int, attempts: tuple[int, ...], between_shares: tuple[float, ...]
) -> pd.DataFrame:
    """A row a number of attempts and share of p (1 - p) that lies between tasks: se of fixed and of drawn tasks, and
    the smallest gain that two such scores show with a chance of 0.8, on the same tasks."""
    rows = []
    for share in between_shares:
        between = share * p * (1 - p)
        for k in attempts:
            fixed = score_se(p, tasks=tasks, attempts=k, between=between)
            drawn = score_se(p, tasks=tasks, attempts=k, between=between, drawn=True)
            rows.append((share, k, fixed, drawn, smallest_gain(se=fixed)))
    return pd.DataFrame(rows, columns=["between_share", "attempts", "se_fixed", "se_drawn", "smallest_gain"])


def power_curve(gains: np.ndarray, *, p: float, tasks: int, attempts: tuple[int, ...]) -> pd.DataFrame:
    """A row a gain and number of attempts: the chance to see it, all tasks equally hard."""
    rows = [
        (k, float(gain), power(float(gain), se=score_se(p, tasks=tasks, attempts=k)))
        for k in attempts
        for gain in gains
    ]
    return pd.DataFrame(rows, columns=["attempts", "gain", "power"])


def difference_z(a: float, b: float, *, tasks: int, attempts: int = 1) -> float:
    """How many standard errors two shares of the same number of tasks are apart, all tasks equally hard."""
    pooled = (a + b) / 2
    return (b - a) / (math.sqrt(2) * score_se(pooled, tasks=tasks, attempts=attempts))
