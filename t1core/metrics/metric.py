"""A metric: one named number a step, and how it comes from what the ranks and processes of a campaign hold."""

from dataclasses import dataclass
from enum import StrEnum


class Reducer(StrEnum):
    """What a metric is over the whole step, whatever the number of ranks: for who averages it over steps, or compares
    layouts."""

    MEAN = "mean"  # sum of numerators over sum of denominators, never a mean of means
    SUM = "sum"
    MAX = "max"
    SAME = "same"  # computed from global moments, alike on every rank


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
