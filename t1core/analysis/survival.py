"""Which trials a step's skim keeps: by family and predicted length, with the weights that would undo the selection.

The first K to finish are the quick ones, so what is trained on is not what was launched. A trial that ended was kept
or lost (cut, or finished too late); the share that is kept is estimated for each cell of family and predicted length,
from this step and, ever less, earlier ones, drawn to the overall share by one trial's worth. A kept trial's weight is
one over that share, and at most `_LARGEST_WEIGHT` before the weights are scaled to a mean of 1. Weighted means over the
kept trials then estimate means over all that ended. Nothing is trained with these weights: they say how large the bias
is.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import numpy as np

Fate = Literal["kept", "cut", "surplus", "continued"]
LENGTHS = ("short", "middle", "long", "unknown")
FATES: tuple[Fate, ...] = ("kept", "cut", "surplus", "continued")
_FORGET = 0.9  # what an earlier step's trials count for, a step later
_LARGEST_WEIGHT = 5.0


@dataclass(frozen=True)
class Survivor:
    """One trial that the skim could have kept: what was known at its launch, and what became of it. `reward` is None
    for one that was not graded."""

    trial_id: str
    family: str
    predicted_s: float | None
    fate: Fate
    reward: float | None = None


@dataclass(frozen=True)
class Cell:
    """The trials of one family and predicted length in one step. `kept_share` is the estimate, `weight` what a kept
    trial of the cell would weigh (NaN without one)."""

    family: str
    length: str
    kept: int
    cut: int
    surplus: int
    continued: int
    kept_share: float
    weight: float


@dataclass
class Survival:
    """Counts of kept and lost trials by (family, length), earlier steps discounted."""

    kept: dict[tuple[str, str], float] = field(default_factory=dict)
    lost: dict[tuple[str, str], float] = field(default_factory=dict)

    def observe(self, trials: Sequence[Survivor]) -> tuple[list[Cell], dict[str, float]]:
        """Take in a step's trials: its cells, sorted, and rollout/length/* and rollout/survival/*."""
        for counts in (self.kept, self.lost):
            for key in counts:
                counts[key] *= _FORGET
        cells = dict(zip((trial.trial_id for trial in trials), cells_of(trials), strict=True))
        for trial in trials:
            if trial.fate != "continued":
                counts = self.kept if trial.fate == "kept" else self.lost
                counts[cells[trial.trial_id]] = counts.get(cells[trial.trial_id], 0.0) + 1.0
        kept = [trial for trial in trials if trial.fate == "kept"]
        shares = {key: self.kept_share(key) for key in set(cells.values())}
        raw = np.array([min(1.0 / shares[cells[trial.trial_id]], _LARGEST_WEIGHT) for trial in kept])
        weights = raw / raw.mean() if len(raw) else raw
        by_cell = {cells[trial.trial_id]: float(weight) for trial, weight in zip(kept, weights, strict=True)}
        return (
            [_cell(key, trials, cells, shares[key], by_cell) for key in sorted(shares)],
            _metrics(trials, cells, kept, weights),
        )

    def kept_share(self, cell: tuple[str, str]) -> float:
        """Estimated chance that a trial of the cell is kept; 1 before anything was lost."""
        kept, lost = sum(self.kept.values()), sum(self.lost.values())
        overall = kept / (kept + lost) if kept + lost else 1.0
        here = self.kept.get(cell, 0.0), self.lost.get(cell, 0.0)
        return (here[0] + overall) / (sum(here) + 1.0)

    def to_dict(self) -> dict[str, Any]:
        """For a file; `from_dict` gives back the same numbers."""
        return {
            name: [[*key, value] for key, value in sorted(counts.items())]
            for name, counts in (("kept", self.kept), ("lost", self.lost))
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        return cls(
            **{
                name: {(family, length): value for family, length, value in rows}
                for name, rows in stored.items()
            }
        )


def cells_of(trials: Sequence[Survivor]) -> list[tuple[str, str]]:
    """(family, length) of each trial; the lengths are thirds of this step's predictions."""
    predicted = [trial.predicted_s for trial in trials if trial.predicted_s is not None]
    bounds = np.quantile(predicted, [1 / 3, 2 / 3]) if predicted else np.zeros(2)
    return [
        (
            trial.family,
            "unknown"
            if trial.predicted_s is None
            else LENGTHS[int(np.searchsorted(bounds, trial.predicted_s, side="left"))],
        )
        for trial in trials
    ]


def cell_rows(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Cells as rows of a table."""
    return [asdict(cell) for cell in cells]


def _cell(
    key: tuple[str, str],
    trials: Sequence[Survivor],
    cells: Mapping[str, tuple[str, str]],
    share: float,
    weights: Mapping[tuple[str, str], float],
) -> Cell:
    fates = Counter(trial.fate for trial in trials if cells[trial.trial_id] == key)
    return Cell(*key, *(fates[fate] for fate in FATES), share, weights.get(key, float("nan")))


def _metrics(
    trials: Sequence[Survivor],
    cells: Mapping[str, tuple[str, str]],
    kept: Sequence[Survivor],
    weights: np.ndarray,
) -> dict[str, float]:
    counts = Counter((cells[trial.trial_id][1], trial.fate) for trial in trials)
    metrics = {f"rollout/length/{length}/{fate}": float(n) for (length, fate), n in sorted(counts.items())}
    num_ended = sum(trial.fate != "continued" for trial in trials)
    if not num_ended or not kept:
        return metrics
    rewards = np.array([np.nan if trial.reward is None else trial.reward for trial in kept])
    plain, corrected = float(rewards.mean()), float((weights * rewards).mean())
    return metrics | {
        "rollout/survival/kept_frac": len(kept) / num_ended,
        "rollout/survival/weight_max": float(weights.max()),
        "rollout/survival/weight_ess_frac": float(weights.sum() ** 2 / (weights**2).sum() / len(weights)),
        "rollout/survival/reward_mean": corrected,
        "rollout/survival/reward_bias": plain - corrected,
    }
