"""How many of G GPUs should sample and how many train: T_step(n) = max(R / n, C / (G - n)).

R and C are the GPU time that a step's rollout and its training take, measured; both halves run at the same time. A step
of rollout is over when enough trials have ended, and no number of GPUs makes one trial shorter: beyond some n the
straggler's time, not R / n, is what rollout takes. `simulate` plays that through trial by trial.
"""

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """n GPUs sample, the rest trains; times in the unit of R and C."""

    num_rollout: int
    rollout: float
    train: float

    @property
    def step(self) -> float:
        return max(self.rollout, self.train)


def split(num_rollout: int, *, rollout: float, train: float, num_gpus: int, tail: float = 0.0) -> Split:
    """The step with n GPUs sampling. rollout, train: GPU time of each half; tail: rollout takes at least this long."""
    return Split(num_rollout, max(rollout / num_rollout, tail), train / (num_gpus - num_rollout))


def best_split(*, rollout: float, train: float, num_gpus: int, tail: float = 0.0, multiple: int = 1) -> Split:
    """The fastest split with n a multiple of `multiple` (GPUs of an engine); of equals the one that samples least."""
    candidates = range(multiple, num_gpus, multiple)
    if not candidates:
        raise ValueError(f"{num_gpus} GPUs cannot be split into two halves with engines of {multiple}")
    return min(
        (split(n, rollout=rollout, train=train, num_gpus=num_gpus, tail=tail) for n in candidates),
        key=lambda each: (each.step, each.num_rollout),
    )


@dataclass(frozen=True)
class Trials:
    """Durations of a step's trials: log-normal around `median` with deviation `sigma` of the logarithm; 0: all alike.

    `launched` are started, the first `accepted` to end are waited for. slots: trials a GPU runs at once at full speed.
    """

    median: float
    sigma: float
    launched: int = 560
    accepted: int = 512
    slots: int = 8

    def durations(self, seed: int = 0) -> list[float]:
        drawn = random.Random(seed)
        return [self.median * math.exp(self.sigma * drawn.gauss(0, 1)) for _ in range(self.launched)]

    @property
    def gpu_time(self) -> float:
        """Mean GPU time of a step's trials, R, when every slot is busy."""
        return self.launched * self.median * math.exp(self.sigma**2 / 2) / self.slots


def rollout_time(durations: Sequence[float], *, num_gpus: int, slots: int, accepted: int) -> float:
    """When the `accepted`-th trial ends, each slot taking the next trial as soon as it is free."""
    if not 0 < accepted <= len(durations):
        raise ValueError(f"accepted={accepted} must be between 1 and the {len(durations)} launched")
    ends: list[float] = []
    free = [0.0] * min(num_gpus * slots, len(durations))
    for duration in durations:
        end = heapq.heappop(free) + duration
        heapq.heappush(free, end)
        ends.append(end)
    return sorted(ends)[accepted - 1]


def simulate(
    trials: Trials, *, train: float, num_gpus: int, multiple: int = 1, num_seeds: int = 3
) -> list[Split]:
    """Splits by trial-by-trial simulation, means over seeds, n a multiple of `multiple`; beyond a slot for every trial
    nothing more is gained, and n stops there.
    """
    drawn = [trials.durations(seed) for seed in range(num_seeds)]
    enough = math.ceil(trials.launched / trials.slots)
    found = []
    for n in range(multiple, num_gpus, multiple):
        taken = [
            rollout_time(each, num_gpus=n, slots=trials.slots, accepted=trials.accepted) for each in drawn
        ]
        found.append(Split(n, sum(taken) / len(taken), train / (num_gpus - n)))
        if n >= enough:
            break
    return found
