"""The order of a pool's tasks by an audit: accepted before borderline before rejected, then by fewer failed checks,
fewer surviving mutants of those tried, more tests, and name."""

from collections.abc import Iterable

from t1core.pools.verdict import Standing, Verdict

_ORDER = tuple(Standing)


def quality_ranks(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """The place of each audited task, from 1 for the best, by task id."""
    ordered = sorted(verdicts, key=_key)
    return {verdict.task_id: rank for rank, verdict in enumerate(ordered, start=1)}


def _key(verdict: Verdict) -> tuple[float | str, ...]:
    numbers = verdict.numbers
    survived = numbers.get("survivors", 0.0) / max(1.0, numbers.get("mutants", 0.0))
    place = float(_ORDER.index(verdict.standing))
    return (place, len(verdict.failed), survived, -numbers.get("num_tests", 0.0), verdict.task_id)
