"""Judging a claim: a number a run, paired differences a seed, and a verdict that the data give.

A measure turns a run into one number. An arm is compared with another seed by seed, since runs of one seed draw the
same tasks in the same order, unless their arm says otherwise, and are evaluated with the same random numbers; the
interval is Student's t over these differences.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import Field

from t1core.analysis.behaviour import turns_by_step
from t1core.analysis.compare import RunFrames
from t1core.analysis.interval import Interval, mean_interval
from t1core.analysis.learning import accepted, quarters
from t1core.config.section import Settings

SCALE = 20.0  # T1's S: tests passed over it are the dense reward, whatever an arm was trained on


class Verdict(StrEnum):
    HELD = "held here"
    NOT_HELD = "not held here"
    UNDECIDED = "undecided at this size"
    NOT_RUN = "not run"


class Contrast(Settings):
    """What a claim predicts of two arms."""

    arm: str
    against: str
    """The arm that it is compared with."""
    expect: Literal["higher", "lower", "same"]
    """Of `arm`, in the measure."""
    margin: float = Field(0.0, ge=0)
    """higher, lower: the difference must be larger than this. same: it must stay within it."""
    measure: str = ""
    """The measure, where it is not the claim's own."""


@dataclass(frozen=True)
class Judged:
    """A contrast beside its data: the paired differences by seed, their interval, and what follows."""

    contrast: Contrast
    measure: str
    differences: Mapping[int, float]
    interval: Interval
    verdict: Verdict

    def __str__(self) -> str:
        one = self.contrast
        if self.verdict is Verdict.NOT_RUN:
            return f"{one.arm} - {one.against}, {self.measure}: {self.verdict}"
        seeds = ", ".join(f"{value:+.4f}" for value in self.differences.values())
        told = f"{self.interval.estimate:+.4f} [{self.interval.low:+.4f}, {self.interval.high:+.4f}]"
        margin = f" by {one.margin:g}" if one.margin and one.expect != "same" else ""
        expected = f"same within {one.margin:g}" if one.expect == "same" else f"{one.expect}{margin}"
        return f"{one.arm} - {one.against}, {self.measure}: {told} (seeds {seeds}); expected {expected}: {self.verdict}"


def judge(contrast: Contrast, values: pd.DataFrame, *, measure: str) -> Judged:
    """Judge one contrast. `values`: arm, seed and a column a measure, one row a run.

    higher holds where the whole interval lies above the margin, and does not where it lies below it; same holds where
    the interval lies within the margin, and does not where it lies outside; anything else is undecided, as are fewer
    than two seeds.
    """
    table = values.pivot_table(index="seed", columns="arm", values=measure, aggfunc="last", dropna=False)
    table = table.reindex(columns=[contrast.arm, contrast.against])
    paired = (table[contrast.arm] - table[contrast.against]).dropna()
    interval = mean_interval(paired)
    return Judged(
        contrast,
        measure,
        {int(seed): float(value) for seed, value in paired.items()},
        interval,
        _verdict(contrast, interval) if len(paired) else Verdict.NOT_RUN,
    )


def _verdict(contrast: Contrast, interval: Interval) -> Verdict:
    low, high, margin = interval.low, interval.high, contrast.margin
    if contrast.expect == "lower":
        low, high = -high, -low
    if contrast.expect == "same":
        is_held, is_refuted = -margin <= low and high <= margin, low > margin or high < -margin
    else:
        is_held, is_refuted = low > margin, high < margin
    return Verdict.HELD if is_held else Verdict.NOT_HELD if is_refuted else Verdict.UNDECIDED


def overall(judged: Sequence[Judged]) -> Verdict:
    """Of a claim: held where every contrast holds, not held where one does not, else undecided; not run where none
    was."""
    verdicts = {one.verdict for one in judged}
    if verdicts == {Verdict.NOT_RUN}:
        return Verdict.NOT_RUN
    if Verdict.NOT_HELD in verdicts:
        return Verdict.NOT_HELD
    return Verdict.HELD if verdicts == {Verdict.HELD} else Verdict.UNDECIDED


def measured(runs: Mapping[tuple[str, int], RunFrames], *, measures: Sequence[str]) -> pd.DataFrame:
    """A row a run: arm, seed, and a column for each measure; NaN where a run cannot tell."""
    rows = [
        {"arm": arm, "seed": seed} | {name: MEASURES[name].of(frames) for name in measures}
        for (arm, seed), frames in runs.items()
    ]
    return pd.DataFrame(rows, columns=["arm", "seed", *measures])


def over_seeds(values: pd.DataFrame, *, measures: Sequence[str]) -> pd.DataFrame:
    """A row an arm: seeds, and mean and 95% interval of each measure over them."""
    rows = []
    for arm, part in values.groupby("arm", sort=False):
        row = {"arm": arm, "seeds": len(part)}
        for name in measures:
            found = mean_interval(part[name].dropna())
            row |= {name: found.estimate, f"{name} low": found.low, f"{name} high": found.high}
        rows.append(row)
    return pd.DataFrame(rows)


def passed_curve(runs: Mapping[tuple[str, int], RunFrames]) -> pd.DataFrame:
    """Long form: arm, seed, step, and the mean tests passed of the trials trained on, over S: arms that are rewarded
    otherwise are comparable in it."""
    parts = []
    for (arm, seed), frames in runs.items():
        means = accepted(frames.trials).groupby("step")["passed"].mean() / SCALE
        parts.append(means.rename("value").reset_index().assign(arm=arm, seed=seed))
    return _long(parts)


def metric_curve(runs: Mapping[tuple[str, int], RunFrames], *, metric: str) -> pd.DataFrame:
    """Long form: arm, seed, step, value of one recorded metric; runs without it are left out."""
    parts = [
        frames.metrics[metric]
        .dropna()
        .rename("value")
        .rename_axis("step")
        .reset_index()
        .assign(arm=arm, seed=seed)
        for (arm, seed), frames in runs.items()
        if metric in frames.metrics
    ]
    return _long(parts)


def _long(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    columns = ["arm", "seed", "step", "value"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


@dataclass(frozen=True)
class Measure:
    """One number of a run, what it means, and the curve by step that it comes from ("" for tests passed, None
    without)."""

    of: Callable[[RunFrames], float]
    meaning: str
    curve: str | None = None


def _heldout(column: str, *, scale: float = 1.0) -> Callable[[RunFrames], float]:
    def of(run: RunFrames) -> float:
        graded = run.trials[(run.trials["kind"] == "eval") & run.trials["passed"].notna()]
        graded = graded[graded["split"] == "heldout"]
        last = graded[graded["step"] == graded["step"].max()]
        return float(last[column].astype(float).mean()) / scale

    return of


def _last_quarter(metric: str) -> Callable[[RunFrames], float]:
    return lambda run: _mean(run, metric, slice(-_quarter(run), None))


def _first_quarter(metric: str) -> Callable[[RunFrames], float]:
    return lambda run: _mean(run, metric, slice(None, _quarter(run)))


def _all_steps(metric: str) -> Callable[[RunFrames], float]:
    return lambda run: _mean(run, metric, slice(None))


def _quarter(run: RunFrames) -> int:
    return max(1, len(run.metrics) // 4)


def _mean(run: RunFrames, metric: str, steps: slice) -> float:
    if metric not in run.metrics:
        return float("nan")
    return float(run.metrics[metric].iloc[steps].mean())


def _train_tests(run: RunFrames) -> float:
    kept = accepted(run.trials)
    _, last = quarters(kept["step"])
    return float(kept.loc[kept["step"].isin(last), "passed"].mean()) / SCALE


def _train_gain(run: RunFrames) -> float:
    kept = accepted(run.trials)
    first, _ = quarters(kept["step"])
    return _train_tests(run) - float(kept.loc[kept["step"].isin(first), "passed"].mean()) / SCALE


def _turns_gain(run: RunFrames) -> float:
    turns = turns_by_step(run.trials)
    first, last = quarters(turns["step"])
    by_step = turns.set_index("step")["turns"]
    return float(by_step[last].mean() - by_step[first].mean())


def _first_positive(run: RunFrames) -> float:
    """The first step at which explained variance is positive on average over it and up to two before; the number of
    steps, if never."""
    ev = run.metrics.get("critic/explained_variance", pd.Series(dtype=float)).dropna()
    above = np.flatnonzero(ev.rolling(3, min_periods=1).mean().to_numpy() > 0)
    return float(ev.index[above[0]]) if len(above) else float(len(run.metrics))


def _ev_at_first(run: RunFrames) -> float:
    ev = run.metrics.get("critic/explained_variance", pd.Series(dtype=float)).dropna()
    return float(ev.iloc[0]) if len(ev) else float("nan")


def _hard_share(run: RunFrames) -> float:
    """Share of tasks with many tests (above the median of those launched) among the trials trained on."""
    launched = run.trials[run.trials["kind"] == "train"]
    median = launched["num_tests"].median()
    return float((accepted(run.trials)["num_tests"] > median).mean())


def _hard_heldout(run: RunFrames) -> float:
    graded = run.trials[(run.trials["kind"] == "eval") & (run.trials["split"] == "heldout")]
    last = graded[(graded["step"] == graded["step"].max()) & graded["passed"].notna()]
    hard = last[last["num_tests"] > last["num_tests"].median()]
    return float((hard["passed"] / hard["total"]).mean())


def _swing(run: RunFrames) -> float:
    kept = accepted(run.trials)
    return float((kept.groupby("step")["passed"].mean() / SCALE).std(ddof=1))


MEASURES: Mapping[str, Measure] = {
    "heldout_tests": Measure(
        _heldout("passed", scale=SCALE), "tests passed over S on held-out tasks, after training", ""
    ),
    "heldout_solved": Measure(_heldout("solved"), "share of held-out tasks solved after training", ""),
    "train_tests": Measure(
        _train_tests, "tests passed over S of the trials trained on, last quarter of steps", ""
    ),
    "train_gain": Measure(_train_gain, "the same, less the first quarter's", ""),
    "hard_heldout": Measure(
        _hard_heldout, "share of tests passed on the held-out tasks with the most tests, after training", ""
    ),
    "ev_first": Measure(_ev_at_first, "explained variance at the first step", "critic/explained_variance"),
    "ev_early": Measure(
        _first_quarter("critic/explained_variance"),
        "explained variance, mean of the first quarter of steps",
        "critic/explained_variance",
    ),
    "ev_last": Measure(
        _last_quarter("critic/explained_variance"),
        "explained variance, mean of the last quarter of steps",
        "critic/explained_variance",
    ),
    "ev_positive_from": Measure(
        _first_positive,
        "first step with a positive explained variance, mean of up to three; the number of steps, if none",
        "critic/explained_variance",
    ),
    "gap": Measure(
        _all_steps("logprob_gap/abs_mean"),
        "mean |trainer - engine| log-prob of trained tokens, nats",
        "logprob_gap/abs_mean",
    ),
    "gap_last": Measure(
        _last_quarter("logprob_gap/abs_mean"),
        "the same, last quarter of steps",
        "logprob_gap/abs_mean",
    ),
    "gap_max": Measure(
        _all_steps("logprob_gap/abs_max"),
        "largest gap of a token in a step, mean over steps",
        "logprob_gap/abs_max",
    ),
    "clip_frac": Measure(
        _all_steps("actor/clip_frac"), "share of trained tokens that are clipped", "actor/clip_frac"
    ),
    "drift": Measure(
        _all_steps("tito/drift_frac"), "share of trained tokens that were not sampled", "tito/drift_frac"
    ),
    "entropy_last": Measure(
        _last_quarter("actor/entropy"), "entropy of the policy, last quarter of steps", "actor/entropy"
    ),
    "turns_last": Measure(
        _last_quarter("rollout/turns_mean"), "turns a trial, last quarter of steps", "rollout/turns_mean"
    ),
    "turns_gain": Measure(_turns_gain, "the same, less the first quarter's", "rollout/turns_mean"),
    "staleness": Measure(
        _all_steps("staleness/updates"), "updates between sampling and training, mean", "staleness/updates"
    ),
    "flat_groups": Measure(
        _all_steps("reward/zero_variance_group_frac"),
        "share of groups whose rewards are all equal",
        "reward/zero_variance_group_frac",
    ),
    "distinct_tasks": Measure(
        _all_steps("rollout/distinct_tasks"), "distinct tasks in a batch", "rollout/distinct_tasks"
    ),
    "idle_frac": Measure(
        _all_steps("rollout/group_idle_frac"),
        "share of trial time spent waiting for a group's slowest",
        "rollout/group_idle_frac",
    ),
    "step_s": Measure(_all_steps("time/step_s"), "wall seconds a step", "time/step_s"),
    "hard_share": Measure(_hard_share, "share of tasks with many tests in the batches", None),
    "reward_swing": Measure(_swing, "standard deviation over steps of the mean tests passed over S", ""),
}
