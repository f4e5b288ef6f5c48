"""Several runs side by side: each run's own gains with their intervals, and their mean over runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from t1core.analysis.critic import explained_variance
from t1core.analysis.gap import logprob_gap
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
    variance (last quarter's mean of critic and of the baseline, minimum over steps); log-prob gap of the last quarter;
    solved gain of each held-out split. The intervals of explained variance and gap are over the quarter's steps, those
    of held-out tasks over tasks.
    """
    rows = []
    for name, run in runs.items():
        gain = quarter_gain(run.trials)
        ev = explained_variance(run.metrics, trials=run.trials)
        last = ev.iloc[-max(1, len(ev) // 4) :]
        ev_interval = mean_interval(last["critic"].dropna())
        gaps = logprob_gap(run.metrics)
        gap_interval = mean_interval(gaps.iloc[-max(1, len(gaps) // 4) :]["replayed"].dropna())
        row = {
            "run": name,
            "seed": run.config.get("seed"),
            "steps": len(run.metrics),
            "reward_first": gain.first_mean,
            "reward_last": gain.last_mean,
            "reward_gain": gain.gain.estimate,
            "low": gain.gain.low,
            "high": gain.gain.high,
            "ev_last": ev_interval.estimate,
            "ev_low": ev_interval.low,
            "ev_high": ev_interval.high,
            "ev_baseline_last": last["num_tests_baseline"].mean(),
            "ev_min": ev["critic"].min(),
            "gap_last": gap_interval.estimate,
            "gap_low": gap_interval.low,
            "gap_high": gap_interval.high,
        }
        heldout = heldout_gain(run.trials)
        for split in heldout.itertuples():
            row |= {
                f"solved_gain/{split.split}": split.solved_gain,
                f"solved_low/{split.split}": split.low,
                f"solved_high/{split.split}": split.high,
            }
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


# What a score was measured with: runs that differ here were not given the same test.
HARNESS = ("agent", "tasks", "sandbox", "verifier", "reward", "evaluation")
_HARNESS_KEYS = (
    "rollout.verifier_timeout_s",
    "rollout.trial_deadline_s",
    "rollout.max_retries",
    "rollout.tail",
)
# Names and places, which change nothing that is measured.
_NAMES = ("name", "run_root", "cluster")


@dataclass(frozen=True)
class Difference:
    """A setting in which runs differ; `values` by run, None where a run does not have it."""

    key: str
    values: Mapping[str, Any]
    is_harness: bool

    def __str__(self) -> str:
        told = ", ".join(f"{run} {value!r}" for run, value in self.values.items())
        return f"{self.key}: {told}"


def differences(configs: Mapping[str, Mapping[str, Any]]) -> list[Difference]:
    """Every setting in which the runs differ, those of the harness first; names and places are left out."""
    flat = {run: _flat(config) for run, config in configs.items()}
    keys = dict.fromkeys(key for one in flat.values() for key in one)
    found = []
    for key in keys:
        values = {run: one.get(key) for run, one in flat.items()}
        first = next(iter(values.values()))
        if any(value != first for value in values.values()) and key.split(".")[0] not in _NAMES:
            found.append(Difference(key, values, key.split(".")[0] in HARNESS or key in _HARNESS_KEYS))
    return sorted(found, key=lambda one: not one.is_harness)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found
