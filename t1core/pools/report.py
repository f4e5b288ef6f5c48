"""What a pool holds, as frames: a row a task, then what is counted of them, before and after an audit."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from t1core.pools.shingles import Pair, alike_within, closest
from t1core.pools.verdict import Standing, latest_verdicts
from t1core.tasks.order import spread
from t1core.tasks.pool import Pool

UNAUDITED = "not audited"


@dataclass(frozen=True)
class TestsPerTask:
    """Median, 90th percentile and maximum of tests a task, and the scale of the dense reward that these suggest: the
    percentile, up to the next five, at least five. T1's 15,000 tasks have 4, about 19 and about 35, and T1 took 20."""

    __test__ = False  # no tests, whatever pytest thinks of the name

    median: float
    p90: float
    most: int
    suggested_scale: int


def task_frame(pool: Pool, *, verdicts: Path | None = None, number: int | None = None) -> pd.DataFrame:
    """A row a task, or for `number` of them at even distances: task_id, family, split, verifier, num_tests, nop_passed
    (NaN until measured), source, licence, and `standing` by an audit's file of verdicts on these very contents."""
    known = {} if verdicts is None else latest_verdicts(verdicts)
    rows = []
    for entry in spread(pool.entries, number):
        verdict = known.get(entry.task_id)
        if verdict is not None and verdict.content_hash != entry.content_hash:
            verdict = None
        passed = entry.nop_passed if verdict is None or verdict.nop_passed is None else verdict.nop_passed
        rows.append(
            {
                "task_id": entry.task_id,
                "family": entry.family,
                "split": entry.split,
                "verifier": entry.verifier,
                "num_tests": entry.num_tests,
                "nop_passed": math.nan if passed is None else len(passed),
                "source": entry.source,
                "licence": entry.licence,
                "standing": UNAUDITED if verdict is None else str(verdict.standing),
            }
        )
    return pd.DataFrame(rows)


def count_tests(tasks: pd.DataFrame) -> TestsPerTask:
    """Of the tasks whose tests are counted. ValueError where there is none."""
    counted = tasks.loc[tasks["verifier"] == "counted", "num_tests"].to_numpy()
    if not len(counted):
        raise ValueError("no task of the pool counts its tests: the dense reward has nothing to scale")
    p90 = float(np.percentile(counted, 90))
    return TestsPerTask(float(np.median(counted)), p90, int(counted.max()), max(5, 5 * math.ceil(p90 / 5)))


def family_counts(tasks: pd.DataFrame) -> pd.DataFrame:
    """A row a family, the largest first: tasks, their share, median tests, and tasks that pass a test untouched."""
    grouped = tasks.groupby("family")
    found = pd.DataFrame(
        {
            "tasks": grouped.size(),
            "share": grouped.size() / len(tasks),
            "median_tests": grouped["num_tests"].median(),
            "nop_passing": grouped["nop_passed"].apply(lambda column: int((column > 0).sum())),
        }
    )
    return found.sort_values(["tasks", "median_tests"], ascending=False)


def before_and_after(tasks: pd.DataFrame) -> pd.DataFrame:
    """A row for all tasks, one for those that were audited and one for each way they can stand: tasks, families, median
    and 90th percentile of tests, and tasks that pass a test untouched."""
    audited = tasks["standing"] != UNAUDITED
    parts = {"all": tasks, "audited": tasks[audited]}
    parts |= {str(name): tasks[tasks["standing"] == str(name)] for name in Standing}
    return pd.DataFrame(
        {
            name: {
                "tasks": len(part),
                "families": part["family"].nunique(),
                "median_tests": part["num_tests"].median(),
                "p90_tests": part["num_tests"].quantile(0.9),
                "nop_passing": int((part["nop_passed"] > 0).sum()),
            }
            for name, part in parts.items()
        }
    ).T


def difficulty(tasks: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """A row a family, by a fixed policy's graded trials: tasks tried, and how many of them it never, sometimes and
    always solved. Trials of tasks that the frame lacks are left out."""
    graded = trials[trials["reward"].notna() & trials["task_id"].isin(tasks["task_id"])]
    solved = graded.assign(solved=graded["solved"].astype(float)).groupby("task_id")["solved"].mean()
    family = tasks.set_index("task_id")["family"].reindex(solved.index)
    return pd.DataFrame(
        {
            "tried": solved.groupby(family).size(),
            "never": (solved == 0).groupby(family).sum(),
            "sometimes": ((solved > 0) & (solved < 1)).groupby(family).sum(),
            "always": (solved == 1).groupby(family).sum(),
            "solved_frac": solved.groupby(family).mean(),
        }
    )


def near_duplicates(pool: Pool, tasks: pd.DataFrame, *, at_least: float = 0.8) -> pd.DataFrame:
    """Pairs of tasks whose instructions are nearly the same, most alike first."""
    return _frame(alike_within(_instructions(pool, tasks), at_least=at_least))


def contamination(
    pool: Pool, tasks: pd.DataFrame, other: Pool, others: pd.DataFrame, *, at_least: float = 0.5
) -> pd.DataFrame:
    """Tasks whose instruction shares 13 words in a row with one of `others`, tasks of an evaluation set, or is this
    much like it, with the closest of these."""
    pairs = closest(_instructions(pool, tasks), _instructions(other, others)).values()
    found = [pair for pair in pairs if pair.shares_long or pair.jaccard >= at_least]
    return _frame(sorted(found, key=lambda pair: (-pair.shares_long, -pair.jaccard, pair.one)))


def _instructions(pool: Pool, tasks: pd.DataFrame) -> Mapping[str, str]:
    wanted = set(tasks["task_id"])
    return {
        entry.task_id: (pool.directory / entry.path / "instruction.md").read_text()
        for entry in pool.entries
        if entry.task_id in wanted
    }


def _frame(pairs: list[Pair]) -> pd.DataFrame:
    return pd.DataFrame([asdict(pair) for pair in pairs], columns=["one", "other", "jaccard", "shares_long"])
