"""Where a model's audit and the executable one speak of the same thing, do they agree? Counts and Cohen's kappa.

    kappa = (observed - expected) / (1 - expected)

with `expected` the agreement, by chance, of two judges who say yes as often as these. NaN where both always say the
same, since chance agrees then, too. The executable audit is not the truth of everything here: a mutant that survives
shows a weak verifier, but none that does shows nothing.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from t1core.pools.llm.model_verdict import Judgement, ModelVerdict
from t1core.pools.llm.rubric import HardReject
from t1core.pools.verdict import Outcome, Standing, Verdict


@dataclass(frozen=True)
class Question:
    """What both may find wrong. `checks` are the executable checks that speak of it, one failed is enough; none: the
    whole verdict."""

    name: str
    found_by_model: Callable[[Judgement, int], bool]  # with the rubric's minimum
    checks: tuple[str, ...] = ()


def _rejects(kind: HardReject) -> Callable[[Judgement, int], bool]:
    return lambda judgement, _: any(one["kind"] == kind for one in judgement.hard_rejects)


def _falls_short(dimension: str) -> Callable[[Judgement, int], bool]:
    return lambda judgement, minimum: judgement.scores[dimension] < minimum


QUESTIONS: tuple[Question, ...] = (
    Question("not accepted", lambda judgement, _: judgement.standing is not Standing.ACCEPT),
    Question("solution incorrect", _falls_short("solution_correctness"), ("solution",)),
    Question("verifier unfair", _falls_short("verifier_fairness"), ("repeats", "order")),
    Question("test leakage", _rejects(HardReject.TEST_LEAKAGE), ("leakage",)),
    Question(
        "verifier too weak",
        _rejects(HardReject.VERIFIER_TOO_WEAK),
        ("untouched", "trivial", "attacks", "mutants"),
    ),
)


def agreement_table(
    by_model: Iterable[ModelVerdict], *, executed: Mapping[str, Verdict], minimum: int
) -> pd.DataFrame:
    """A row a question: num_tasks (judged by both, of the same content), both, only_model, only_executed, neither found
    it, observed agreement, kappa.

    Of the model's judgements the first counts, since the executable audit saw the task as it is. A check that was
    skipped says nothing: where all of a question's were, the task is left out of it.
    """
    rows = []
    pairs = [
        (verdict.judgements[0], other)
        for verdict in by_model
        if verdict.judgements
        and (other := executed.get(verdict.task_id)) is not None
        and other.content_hash == verdict.content_hash
    ]
    for question in QUESTIONS:
        found = [
            (question.found_by_model(judgement, minimum), executed_says)
            for judgement, other in pairs
            if (executed_says := _found(question, other)) is not None
        ]
        counts = {
            pair: found.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False))
        }
        both, only_model, only_executed, neither = counts.values()
        rows.append(
            {
                "question": question.name,
                "num_tasks": len(found),
                "both": both,
                "only_model": only_model,
                "only_executed": only_executed,
                "neither": neither,
                "observed": (both + neither) / len(found) if found else math.nan,
                "kappa": cohens_kappa(both, only_model, only_executed, neither),
            }
        )
    return pd.DataFrame(rows)


def cohens_kappa(both: int, only_first: int, only_second: int, neither: int) -> float:
    """Kappa of two yes-or-no judges; NaN where it is undefined."""
    total = both + only_first + only_second + neither
    if not total:
        return math.nan
    first, second = (both + only_first) / total, (both + only_second) / total
    expected = first * second + (1 - first) * (1 - second)
    return math.nan if expected == 1 else ((both + neither) / total - expected) / (1 - expected)


def _found(question: Question, verdict: Verdict) -> bool | None:
    """Whether the executable audit found it; None where it did not look."""
    if not question.checks:
        return verdict.standing is not Standing.ACCEPT
    outcomes = [check.outcome for check in verdict.checks if check.name in question.checks]
    looked = [outcome for outcome in outcomes if outcome is not Outcome.SKIPPED]
    return Outcome.FAILED in looked if looked else None
