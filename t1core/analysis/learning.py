"""Does it learn: the reward of each step, and the last quarter of steps against the first."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from t1core.analysis.interval import Interval, mean_interval, welch_interval


@dataclass(frozen=True)
class QuarterGain:
    """Mean reward of the last quarter of steps minus that of the first, over trials."""

    gain: Interval
    first_mean: float
    last_mean: float
    first_steps: tuple[int, ...]
    last_steps: tuple[int, ...]
    first_trials: int
    last_trials: int


def accepted(trials: pd.DataFrame) -> pd.DataFrame:
    """The training trials that made a batch."""
    return trials[(trials["kind"] == "train") & (trials["outcome"] == "accepted")]


def quarters(steps: pd.Series) -> tuple[list[int], list[int]]:
    """(steps of the first quarter, steps of the last): a quarter each, rounded down, but at least one step."""
    ordered = sorted(int(step) for step in steps.unique())
    size = max(1, len(ordered) // 4)
    return ordered[:size], ordered[-size:]


def reward_curve(trials: pd.DataFrame) -> pd.DataFrame:
    """A row a step over accepted trials: reward mean with its 95% interval, std, solved_frac, passed_frac,
    trials.
    """
    rows = []
    for step, part in accepted(trials).groupby("step"):
        interval = mean_interval(part["reward"])
        rows.append(
            {
                "step": int(step),
                "reward": interval.estimate,
                "low": interval.low,
                "high": interval.high,
                "std": float(part["reward"].std(ddof=0)),
                "solved_frac": float(part["solved"].astype(float).mean()),
                "passed_frac": float((part["passed"] / part["total"]).mean()),
                "trials": len(part),
            }
        )
    columns = ["step", "reward", "low", "high", "std", "solved_frac", "passed_frac", "trials"]
    return pd.DataFrame(rows, columns=columns)


def quarter_gain(trials: pd.DataFrame) -> QuarterGain:
    """Last quarter against first. Undefined (NaN) with fewer than two steps: the quarters would be the same
    trials.
    """
    kept = accepted(trials)
    first, last = quarters(kept["step"]) if len(kept) else ([], [])
    before = kept.loc[kept["step"].isin(first), "reward"]
    after = kept.loc[kept["step"].isin(last), "reward"]
    gain = welch_interval(after, before=before) if first != last else Interval(np.nan, np.nan, np.nan)
    return QuarterGain(
        gain=gain,
        first_mean=float(before.mean()),
        last_mean=float(after.mean()),
        first_steps=tuple(first),
        last_steps=tuple(last),
        first_trials=len(before),
        last_trials=len(after),
    )
