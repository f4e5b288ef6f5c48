"""Why turns grow: more turns may be useful work, turns that buy no tests, or work done again after lost context.

Compared are the first and the last steps of a run, by what every step records. In this order:
- context loss: a tenth of the trials or more lose a summary, so that the model starts over;
- farming: the tests gained for each extra turn are less than 0.3 of the tests that a turn brought at first. A reward
  that takes less from a long trial than one more test gives invites it;
- useful work: the extra turns bring tests at more than that rate.
The bounds are ours. T1's runs lie on their right sides: 10.4 to 20.9 turns with 1.9 tests more is 0.38 of the first
rate; one test for 25 turns more, at 4 in 25, is 0.25.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

WINDOW = 5
GROWTH = 0.25
LOST_SUMMARIES = 0.1
FARMING_RATE = 0.3
_NEEDED = ("rollout/turns_mean", "agent/tests_passed_mean")


class Cause(StrEnum):
    CONTEXT_LOSS = "context_loss"
    FARMING = "farming"
    USEFUL_WORK = "useful_work"


@dataclass(frozen=True)
class TurnGrowth:
    """Turns have grown from `first` to `last` a trial. `tests_per_extra_turn` is tests gained over turns gained."""

    cause: Cause
    first: float
    last: float
    tests_per_extra_turn: float
    lost_summary_frac: float
    repeated_command_frac: tuple[float, float]
    wait_expired_frac: tuple[float, float]

    def __str__(self) -> str:
        repeated, expired = self.repeated_command_frac, self.wait_expired_frac
        return (
            f"turns grew from {self.first:.1f} to {self.last:.1f}: likely {self.cause.replace('_', ' ')} "
            f"({self.tests_per_extra_turn:+.2f} tests an extra turn, {self.lost_summary_frac:.0%} of trials lost a "
            f"summary, repeated commands {repeated[0]:.0%} to {repeated[1]:.0%}, waits run out {expired[0]:.0%} to "
            f"{expired[1]:.0%})"
        )


def turn_growth(steps: Sequence[Mapping[str, float]]) -> TurnGrowth | None:
    """Compare the first and the last `WINDOW` of a run's steps, each a mapping of its metrics. None when there are
    fewer than two windows, or where turns did not grow by `GROWTH` and by one turn at least."""
    known = [step for step in steps if all(math.isfinite(step.get(name, math.nan)) for name in _NEEDED)]
    if len(known) < 2 * WINDOW:
        return None
    before, after = known[:WINDOW], known[-WINDOW:]
    first, last = (_mean(window, "rollout/turns_mean") for window in (before, after))
    if last - first < max(1.0, GROWTH * first):
        return None
    passed_first, passed_last = (_mean(window, "agent/tests_passed_mean") for window in (before, after))
    gained = (passed_last - passed_first) / (last - first)
    lost = _mean(after, "agent/lost_summary_frac")
    if lost >= LOST_SUMMARIES:
        cause = Cause.CONTEXT_LOSS
    elif gained < FARMING_RATE * passed_first / first:
        cause = Cause.FARMING
    else:
        cause = Cause.USEFUL_WORK
    return TurnGrowth(
        cause,
        first,
        last,
        gained,
        lost,
        (_mean(before, "agent/repeated_command_frac"), _mean(after, "agent/repeated_command_frac")),
        (_mean(before, "agent/wait_expired_frac"), _mean(after, "agent/wait_expired_frac")),
    )


def _mean(steps: Sequence[Mapping[str, float]], name: str) -> float:
    """Mean over the steps that have the metric; 0 where none has, since it counts things that did not happen."""
    values = [step[name] for step in steps if math.isfinite(step.get(name, math.nan))]
    return math.fsum(values) / len(values) if values else 0.0
