"""Where a gain lies: held-out tasks before and after, by how many tests a task has, and by family."""

import pandas as pd

from t1core.analysis.interval import mean_interval

LEVELS = ("few", "middle", "many")


def evaluated(trials: pd.DataFrame) -> pd.DataFrame:
    """Graded attempts of the first and the last evaluation, with `when` (before, after), and `level`: thirds of the
    tasks by their number of tests. ValueError with fewer than two evaluations."""
    graded = trials[(trials["kind"] == "eval") & trials["reward"].notna()]
    steps = sorted(graded["step"].unique())
    if len(steps) < 2:
        raise ValueError(f"the run has {len(steps)} evaluations; before and after need two")
    kept = graded[graded["step"].isin((steps[0], steps[-1]))].copy()
    kept["when"] = kept["step"].map({steps[0]: "before", steps[-1]: "after"})
    by_task = kept.drop_duplicates("task_id").set_index("task_id")["num_tests"].rank(method="first", pct=True)
    kept["level"] = kept["task_id"].map(
        pd.cut(by_task, [0, 1 / 3, 2 / 3, 1], labels=list(LEVELS)).astype(str)
    )
    return kept


def solved_by(attempts: pd.DataFrame, *, by: str) -> pd.DataFrame:
    """A row a value of column `by` and `when`: attempts, solved share with its 95% interval, mean share of tests passed
    and mean turns. `attempts` is `evaluated` of a run."""
    rows = []
    for (value, when), part in attempts.groupby([by, "when"]):
        solved = mean_interval(part["solved"].astype(float))
        passed = (part["passed"] / part["total"]).mean()
        rows.append(
            (
                value,
                when,
                len(part),
                solved.estimate,
                solved.low,
                solved.high,
                passed,
                part["num_turns"].mean(),
            )
        )
    columns = [by, "when", "attempts", "solved", "low", "high", "passed_frac", "turns"]
    return pd.DataFrame(rows, columns=columns)
