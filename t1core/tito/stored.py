"""The audit of a stored run: its trained rows against the calls it kept, long after the step and by other hands.

Prompts, sampled ids, log-probs and weight versions are compared one by one. Routes are stored once, with the
rows; of what each call captured a fingerprint is left, and the rows in its sampled stretch must have it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from t1core.records import Batch, RowStatus, TrainingRow, TurnSpan, routes_digest
from t1core.store import Run, StoredCall
from t1core.tito.audit import Audit, audit


def audit_step(run: Run, step: int) -> Audit:
    """Audit the trained batch of one step. ValueError where the run kept no prompts or no spans."""
    batch, _ = run.batch(step)
    calls, spans = run.step_calls(step), run.spans(step)
    if not all(spans):
        raise ValueError(f"step {step} of {run.path}: rows without turn spans can't be audited")
    vocabulary = run.vocabulary()
    text_of = _text_of(vocabulary) if vocabulary else None
    total = audit([], [])
    for trial_id in dict.fromkeys(batch.rollout_ids):
        indices = [i for i, name in enumerate(batch.rollout_ids) if name == trial_id]
        rows = [_row(batch, i, chunk=chunk, spans=spans[i]) for chunk, i in enumerate(indices)]
        captured = calls.get(trial_id, [])
        total += audit([one.call for one in captured], rows, text_of=text_of)
        for row, i in zip(rows, indices, strict=True):
            total += _with(_route_problems(row, batch, i, calls=captured))
    return total


def _row(batch: Batch, index: int, *, chunk: int, spans: Sequence[TurnSpan]) -> TrainingRow:
    """A row of the batch as the auditor takes it. Routes are left out: the store has nothing to hold each against."""
    here = slice(batch.cu_seqlens[index], batch.cu_seqlens[index + 1])
    return TrainingRow(
        rollout_id=batch.rollout_ids[index],
        chunk=chunk,
        tokens=batch.tokens[here],
        response_length=len(batch.tokens[here]) - spans[0].start,
        loss_mask=batch.loss_mask[here],
        rollout_log_probs=batch.rollout_log_probs[here],
        rollout_routed_experts=None,
        weight_versions=batch.weight_versions[here],
        reward=float(batch.rewards[index]),
        status=RowStatus.COMPLETED,
        spans=tuple(spans),
    )


def _route_problems(
    row: TrainingRow, batch: Batch, index: int, *, calls: Sequence[StoredCall]
) -> tuple[str, ...]:
    if batch.routed_experts is None:
        return ()
    routes, digests = batch.routes(index), {one.call.model_call_id: one.routes_digest for one in calls}
    return tuple(
        f"rollout {row.rollout_id} chunk {row.chunk}: routes of call {span.model_call_id} are not those captured"
        for span in row.spans
        if digests.get(span.model_call_id) != routes_digest(routes[span.start - 1 : span.end - 1])
    )


def _with(problems: tuple[str, ...]) -> Audit:
    """An audit of nothing but these problems."""
    return Audit({}, 0, 0, 0, 0, 0, 0, 0, problems)


def _text_of(vocabulary: list[str]) -> Callable[[np.ndarray], str]:
    return lambda ids: "".join(vocabulary[i] for i in ids)
