"""A metric: one named number a step, and how the parts of it that several ranks hold become that number."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Reducer(StrEnum):
    """How parts measured by several ranks or processes combine."""

    MEAN = "mean"  # sum of numerators over sum of denominators, never a mean of means
    SUM = "sum"
    MAX = "max"
    SAME = "same"  # every rank holds the global value already; they must agree


@dataclass(frozen=True)
class Metric:
    """`name` may hold wildcards (`rollout/stop/<reason>`); `choices` says what one may be, if closed.

    `good` is what a healthy run shows, in a few words; `aliases` are names that readers of other stacks know.
    """

    name: str
    unit: str
    reducer: Reducer
    meaning: str
    good: str
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


def reduce_parts(reducer: Reducer, parts: Sequence[tuple[float, float]]) -> float:
    """One value from (numerator, denominator) pairs, one a rank; SUM, MAX and SAME ignore the denominator.

    MEAN over a total denominator of 0 is undefined, hence NaN. Ranks without data contribute (0, 0).
    """
    assert parts, "a metric needs at least one part"
    values = [value for value, _ in parts]
    if reducer is Reducer.SUM:
        return math.fsum(values)
    if reducer is Reducer.MAX:
        return math.nan if any(math.isnan(value) for value in values) else max(values)
    if reducer is Reducer.SAME:
        first = values[0]
        agree = all(value == first or (math.isnan(value) and math.isnan(first)) for value in values)
        assert agree, f"ranks disagree on a value they should share: {values}"
        return first
    weight = math.fsum(weight for _, weight in parts)
    return math.fsum(values) / weight if weight else math.nan
