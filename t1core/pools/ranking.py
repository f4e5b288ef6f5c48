"""The order of a pool's tasks by an audit: accepted before borderline before rejected, then by fewer failed checks,
fewer surviving mutants of those tried, more tests, and name."""

from pathlib import Path

from t1core.pools.verdict import Standing, Verdict, read_verdicts

_ORDER = tuple(Standing)


def quality_ranks(verdicts: Path) -> dict[str, int]:
    """The place of each audited task, from 1 for the best, by task id. ValueError for a file that is no audit's."""
    by_task = {verdict.task_id: verdict for verdict in read_verdicts(verdicts)}  # the latest of each
    return {v.task_id: rank for rank, v in enumerate(sorted(by_task.values(), key=_key), start=1)}


def _key(verdict: Verdict) -> tuple[float | str, ...]:
    numbers = verdict.numbers
    survived = numbers.get("survivors", 0.0) / max(1.0, numbers.get("mutants", 0.0))
    place = float(_ORDER.index(verdict.standing))
    return (place, len(verdict.failed), survived, -numbers.get("num_tests", 0.0), verdict.task_id)
