"""Several runs side by side: each run's own gains with their intervals, and their mean over runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from t1core.analysis.critic import explained_variance
from t1core.analysis.heldout import heldout_gain
from t1core.analysis.interval import Interval, mean_interval
from t1core.analysis.learning import quarter_gain, reward_curve


@dataclass(frozen=True)
class RunFrames:
    """What a comparison needs of one run: its resolved configuration, training metrics and trials."""

    config: Mapping[str, Any]
    metrics: pd.DataFrame
    trials: pd.DataFrame


def compare_runs(runs: Mapping[str, RunFrames]) -> pd.DataFrame:
    """A row a run: seed, steps, reward of the first and last quarter, gain with its 95% interval; explained
    variance (last quarter's mean of critic and of the baseline, minimum over steps); solved gain of each
    held-out split.
    """
    rows = []
    for name, run in runs.items():
        gain = quarter_gain(run.trials)
        ev = explained_variance(run.metrics, trials=run.trials)
        last = ev.iloc[-max(1, len(ev) // 4) :]
        row = {
            "run": name,
            "seed": run.config.get("seed"),
            "steps": len(run.metrics),
            "reward_first": gain.first_mean,
            "reward_last": gain.last_mean,
            "reward_gain": gain.gain.estimate,
            "low": gain.gain.low,
            "high": gain.gain.high,
            "ev_last": last["critic"].mean(),
            "ev_baseline_last": last["num_tests_baseline"].mean(),
            "ev_min": ev["critic"].min(),
        }
        heldout = heldout_gain(run.trials)
        row |= {f"solved_gain/{split.split}": split.solved_gain for split in heldout.itertuples()}
        rows.append(row)
    return pd.DataFrame(rows)


def over_runs(table: pd.DataFrame) -> dict[str, Interval]:
    """Mean over runs of each compared number, with the 95% interval that the runs' spread gives."""
    names = ["reward_gain", "ev_last", *(name for name in table.columns if name.startswith("solved_gain/"))]
    return {name: mean_interval(table[name].dropna()) for name in names if name in table}


def reward_curves(runs: Mapping[str, RunFrames]) -> pd.DataFrame:
    """Long form: run, step, reward; only steps that every run has, so that their mean compares like with
    like.
    """
    curves = {name: reward_curve(run.trials)[["step", "reward"]] for name, run in runs.items()}
    if not curves:
        return pd.DataFrame(columns=["run", "step", "reward"])
    common = set.intersection(*(set(curve["step"]) for curve in curves.values()))
    frame = pd.concat([curve.assign(run=name) for name, curve in curves.items()], ignore_index=True)
    return frame[frame["step"].isin(common)][["run", "step", "reward"]].reset_index(drop=True)
