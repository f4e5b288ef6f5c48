"""Trials under a time limit that nobody's task asked for: real processes, ended by coreutils' `timeout`.

A trial is a process that works for a share of the time its task allows. The harness divides all of a task's time by a
factor of its own before it looks at the task's.
"""

import subprocess

import numpy as np
import pandas as pd

from t1core.agent.context import agent_time_s


def run_trials(
    asked_s: list[float], *, cap_s: float, divisor: float, unit_s: float, seed: int
) -> pd.DataFrame:
    """Each task's trial under its budget: what it asks for, at most `cap_s`, over `divisor` (1: as it should be).

    A trial needs 55 to 80% of what its task asks for. `unit_s` wall seconds stand for a second of a task.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for asked in asked_s:
        needs = asked * rng.uniform(0.55, 0.8)
        budget = agent_time_s(asked_s=asked, cap_s=cap_s) / divisor
        work = ["timeout", "-s", "KILL", f"{budget * unit_s:.4f}", "sleep", f"{needs * unit_s:.4f}"]
        rows.append(dict(asked_s=asked, needs_s=needs, budget_s=budget, stop=subprocess.Popen(work)))
    for row in rows:
        row["stop"] = "completed" if row["stop"].wait() == 0 else "agent timeout"
    return pd.DataFrame(rows)
