"""Where a step's time goes: wall time by side, processor time by part."""

import pandas as pd

from t1core.analysis.columns import columns_of

CPU_PARTS = ("generate", "box", "grade", "train", "driver")


def time_split(metrics: pd.DataFrame) -> pd.DataFrame:
    """A row a step, seconds: step_s, rollout_s, train_s, barrier_s, and other_s.

    Rollout and training run side by side, so other_s is the step less the longer of the two and the barrier.
    """
    names = {f"time/{phase}_s": f"{phase}_s" for phase in ("step", "rollout", "train", "barrier")}
    frame = columns_of(metrics, names).rename(columns={"step_s": "total_s"})
    sides = frame[["rollout_s", "train_s"]].max(axis=1)
    frame["other_s"] = frame["total_s"] - sides - frame["barrier_s"].fillna(0.0)
    return frame


def cpu_budget(metrics: pd.DataFrame, *, num_cpus: int) -> pd.DataFrame:
    """A row a part: mean CPU seconds a step, and their share of what `num_cpus` offer in a step's wall time.

    The last row, `unused`, is the rest: idle, waiting, or spent by processes that nobody counted.
    """
    names = {f"cpu/{part}_s": part for part in CPU_PARTS}
    frame = columns_of(metrics, names | {"time/step_s": "wall"})
    means = frame[list(CPU_PARTS)].mean()
    offered = float(frame["wall"].mean()) * num_cpus
    rows = [(part, float(means[part])) for part in CPU_PARTS]
    rows.append(("unused", offered - float(means.sum())))
    table = pd.DataFrame(rows, columns=["part", "cpu_s_per_step"])
    table["share"] = table["cpu_s_per_step"] / offered
    return table
