"""Held-out tasks before and after training, compared task by task."""

import pandas as pd

from t1core.analysis.interval import mean_interval


def heldout_gain(trials: pd.DataFrame) -> pd.DataFrame:
    """A row a split: tasks, solved and reward before and after, and the solved gain with its 95% interval.

    Before and after are the first and the last evaluation. The interval is over tasks graded in both, paired.
    Empty with fewer than two evaluations.
    """
    columns = ["split", "tasks", "solved_before", "solved_after", "solved_gain", "low", "high"]
    columns += ["reward_before", "reward_after"]
    graded = trials[(trials["kind"] == "eval") & trials["reward"].notna()]
    steps = sorted(graded["step"].unique())
    if len(steps) < 2:
        return pd.DataFrame(columns=columns)
    values = graded.assign(solved=graded["solved"].astype(float))
    by_task = values.groupby(["split", "task_id", "step"])[["solved", "reward"]].mean().unstack("step")
    rows = []
    for split, part in by_task.groupby(level="split"):
        solved = part["solved"][[steps[0], steps[-1]]].dropna()
        reward = part["reward"][[steps[0], steps[-1]]].dropna()
        gain = mean_interval(solved[steps[-1]] - solved[steps[0]])
        rows.append(
            {
                "split": split,
                "tasks": len(solved),
                "solved_before": solved[steps[0]].mean(),
                "solved_after": solved[steps[-1]].mean(),
                "solved_gain": gain.estimate,
                "low": gain.low,
                "high": gain.high,
                "reward_before": reward[steps[0]].mean(),
                "reward_after": reward[steps[-1]].mean(),
            }
        )
    return pd.DataFrame(rows, columns=columns)
