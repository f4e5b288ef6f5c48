"""Verdicts as a table: one row a task, one column a check."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from t1core.pools.verdict import CHECKS, Outcome, Standing, Verdict, latest_verdicts


def verdict_frame(path: Path) -> pd.DataFrame:
    """The latest verdict on each task: task_id, family, standing, a column with the outcome of each check that was
    made, the numbers that were measured, and `evidence` of what failed."""
    rows = [
        {"task_id": one.task_id, "family": one.family, "standing": str(one.standing)}
        | {check.name: str(check.outcome) for check in one.checks}
        | dict(one.numbers)
        | {"evidence": "; ".join(f"{check.name}: {check.evidence}" for check in one.failed)}
        for one in latest_verdicts(path).values()
    ]
    return pd.DataFrame(rows)


def summary_lines(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """How many tasks stand where, and how many fail each check."""
    every = list(verdicts)
    standing = Counter(one.standing for one in every)
    yield f"{len(every)} tasks: " + ", ".join(f"{standing[name]} {name}" for name in Standing)
    failed = Counter(check.name for one in every for check in one.failed)
    made = Counter(
        check.name for one in every for check in one.checks if check.outcome is not Outcome.SKIPPED
    )
    for name, meaning in CHECKS.items():
        if made[name]:
            yield f"    {name:10s} {failed[name]:4d} of {made[name]} fail: {meaning}"
