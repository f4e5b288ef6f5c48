"""The audit of a stored run: its trained rows against the calls it kept, long after the step and by other hands.

Prompts, sampled ids, log-probs and weight versions are compared one by one. Routes are stored once, with the
rows; of what each call captured a fingerprint is left, and the rows in its sampled stretch must have it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from t1core.records import TrainingRow, routes_digest
from t1core.store import Run, StoredCall
from t1core.tito.audit import Audit, audit


def audit_step(run: Run, step: int) -> Audit:
    """Audit the trained batch of one step. ValueError where the run kept no prompts or no spans."""
    calls, vocabulary = run.stored_calls(step), run.vocabulary()
    text_of = _text_of(vocabulary) if vocabulary else None
    by_trial: dict[str, list[TrainingRow]] = {}
    for row in run.rows(step):
        by_trial.setdefault(row.rollout_id, []).append(row)
    total = audit([], [])
    for trial_id, rows in by_trial.items():
        captured = calls.get(trial_id, [])
        without_routes = [replace(row, rollout_routed_experts=None) for row in rows]
        total += audit([one.call for one in captured], without_routes, text_of=text_of)
        total += _with(tuple(problem for row in rows for problem in _route_problems(row, calls=captured)))
    return total


def _route_problems(row: TrainingRow, *, calls: Sequence[StoredCall]) -> list[str]:
    routes, digests = row.rollout_routed_experts, {one.call.model_call_id: one.routes_digest for one in calls}
    if routes is None:
        return []
    return [
        f"rollout {row.rollout_id} chunk {row.chunk}: routes of call {span.model_call_id} are not those captured"
        for span in row.spans
        if digests.get(span.model_call_id) != routes_digest(routes[span.start - 1 : span.end - 1])
    ]


def _with(problems: tuple[str, ...]) -> Audit:
    """An audit of nothing but these problems."""
    return Audit({}, 0, 0, 0, 0, 0, 0, 0, problems)


def _text_of(vocabulary: list[str]) -> Callable[[np.ndarray], str]:
    return lambda ids: "".join(vocabulary[i] for i in ids)
