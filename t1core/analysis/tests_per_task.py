"""How many tests tasks have."""

import pandas as pd


def tests_per_task(trials: pd.DataFrame) -> pd.DataFrame:
    """A row a number of tests: how many of the tasks that a run met have it, and the share that has at most as many."""
    counts = trials.drop_duplicates("task_id")["num_tests"].value_counts().sort_index()
    frame = counts.rename_axis("num_tests").reset_index(name="tasks")
    return frame.assign(at_most_frac=frame["tasks"].cumsum() / frame["tasks"].sum())


def quantile(frame: pd.DataFrame, share: float) -> int:
    """The smallest number of tests that at least `share` of the tasks do not exceed; `frame` is tests_per_task."""
    return int(frame.loc[frame["at_most_frac"] >= share - 1e-12, "num_tests"].iloc[0])
