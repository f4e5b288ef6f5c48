"""Runs side by side as plain text: the table of the compare notebook, and what makes their scores hard to compare."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from t1core.analysis import Interval, RunFrames, compare_runs, differences, over_runs
from t1core.store import Run, find_runs


def comparison_lines(paths: Sequence[Path]) -> Iterator[str]:
    """Each run's numbers with their 95% intervals, the mean over runs, and the settings in which the runs differ: first
    those of the harness, under which scores do not mean the same. ValueError where there is no run.
    """
    runs = _open(paths)
    frames = {name: RunFrames(run.config(), run.metrics("train"), run.trials()) for name, run in runs.items()}
    yield from table_lines(frames)
    states = {name: run.status().state for name, run in runs.items()}
    for name, state in states.items():
        if state != "finished":
            yield f"note: {name} is {state}"


def table_lines(frames: dict[str, RunFrames]) -> Iterator[str]:
    table = compare_runs(frames)
    for row in table.to_dict("records"):
        yield f"{row['run']}  (seed {row['seed']}, {row['steps']} steps)"
        gain, ev = _of(row, "reward_gain", "low", "high"), _of(row, "ev_last", "ev_low", "ev_high")
        yield f"  reward       {row['reward_first']:.3f} to {row['reward_last']:.3f}, {gain}"
        yield f"  EV           {ev}, num_tests baseline {row['ev_baseline_last']:+.3f}"
        yield f"  gap          {row['gap_last']:.5f} [{row['gap_low']:.5f}, {row['gap_high']:.5f}] nats"
        for column in table.columns:
            if column.startswith("solved_gain/") and pd.notna(row[column]):
                split = column.removeprefix("solved_gain/")
                yield f"  {split:12} solved {_of(row, column, f'solved_low/{split}', f'solved_high/{split}')}"
    if len(table) > 1:
        yield f"mean over {len(table)} runs, by their spread"
        for name, interval in over_runs(table).items():
            yield f"  {name:28} {interval}"
    found = differences({name: one.config for name, one in frames.items()})
    if any(one.is_harness for one in found):
        yield "WARNING: not the same harness or limits, so scores are not comparable as they stand:"
        yield from (f"  {one}" for one in found if one.is_harness)
    others = [one for one in found if not one.is_harness]
    if others:
        yield "differ in:"
        yield from (f"  {one}" for one in others)


def _of(row: dict[str, float], estimate: str, low: str, high: str) -> str:
    return str(Interval(row[estimate], row[low], row[high]))


def _open(paths: Sequence[Path]) -> dict[str, Run]:
    """Runs by a short name that tells them apart: a folder's runs by their path in it."""
    if len(paths) == 1 and not (paths[0] / "config.json").exists():
        return find_runs(paths[0])
    runs = {path.resolve(): Run.open(path) for path in paths}
    short = [path.name for path in runs]
    return {path.name if short.count(path.name) == 1 else str(path): run for path, run in runs.items()}
