"""The auditor: checks training rows against the calls they came from, sharing no code with the assembler.

It looks for every call's sampled ids inside the rows' trained stretches itself, and takes the spans that a
row claims only as claims. Each position of a row is then one of
- aligned: its id is the one that a call was given or sampled there;
- retokenised: it lies in a trained stretch that has a call's text but other ids;
- placeholder: no call accounts for it.
Drift is the share of trained positions that are not aligned; it must be exactly 0.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from t1core.records import ModelCall, PrefixRelation, TrainingRow, TurnSpan


@dataclass(frozen=True)
class Audit:
    """What the rows of one trial (or, summed, of one step) were found to be. `problems` is empty when all is
    well.
    """

    relations: dict[PrefixRelation, int]  # boundaries between calls, as the rows claim them
    num_aligned: int
    num_retokenised: int
    num_placeholder: int
    num_loss_tokens: int
    num_drifted: int
    num_sampled: int
    num_delivered: int
    problems: tuple[str, ...]

    @property
    def drift_frac(self) -> float:
        """Trained positions that are not aligned, over all trained positions; NaN without any."""
        return self.num_drifted / self.num_loss_tokens if self.num_loss_tokens else float("nan")

    @property
    def delivered_token_frac(self) -> float:
        """Sampled tokens that are trained, over all sampled tokens; NaN without any."""
        return self.num_delivered / self.num_sampled if self.num_sampled else float("nan")

    @property
    def relation_fracs(self) -> dict[PrefixRelation, float]:
        """Share of each relation among the boundaries; NaN without any."""
        total = sum(self.relations.values())
        return {r: self.relations.get(r, 0) / total if total else float("nan") for r in PrefixRelation}

    def __add__(self, other: "Audit") -> "Audit":
        return Audit(
            relations=dict(Counter(self.relations) + Counter(other.relations)),
            num_aligned=self.num_aligned + other.num_aligned,
            num_retokenised=self.num_retokenised + other.num_retokenised,
            num_placeholder=self.num_placeholder + other.num_placeholder,
            num_loss_tokens=self.num_loss_tokens + other.num_loss_tokens,
            num_drifted=self.num_drifted + other.num_drifted,
            num_sampled=self.num_sampled + other.num_sampled,
            num_delivered=self.num_delivered + other.num_delivered,
            problems=self.problems + other.problems,
        )


class _Row:
    """A row under audit: what each position turned out to be, and what was said against it."""

    def __init__(self, row: TrainingRow) -> None:
        self.row = row
        self.name = f"rollout {row.rollout_id} chunk {row.chunk}"
        self.is_aligned = np.zeros(len(row.tokens), dtype=bool)
        self.is_retokenised = np.zeros(len(row.tokens), dtype=bool)
        self.is_taken = np.zeros(len(row.tokens), dtype=bool)
        self.is_routed = np.zeros(max(0, len(row.tokens) - 1), dtype=bool)
        self.problems: list[str] = []


def audit(
    calls: Sequence[ModelCall],
    rows: Sequence[TrainingRow],
    *,
    text_of: Callable[[np.ndarray], str] | None = None,
) -> Audit:
    """Audit the rows of one trial. text_of tells a re-tokenised copy from foreign tokens; without it both are
    placeholders.
    """
    audited = [_Row(row) for row in rows]
    by_id = {call.model_call_id: call for call in calls}
    delivered: Counter[str] = Counter()
    relations: Counter[PrefixRelation] = Counter()
    for one in audited:
        end, before = 0, None
        for index, span in enumerate(one.row.spans):
            call = by_id.get(span.model_call_id)
            if call is None:
                one.problems.append(f"{one.name}: span of unknown call {span.model_call_id}")
                continue
            sampled = call.completion_token_ids[: _num_captured(call)]
            start = _locate(one, sampled, claimed=span.start, not_before=end)
            if start is None:
                one.problems.append(
                    f"{one.name}: the ids sampled by call {call.model_call_id} are not trained as they are"
                )
                _mark_text(one, sampled, start=span.start, end=span.end, text_of=text_of)
                start, found_end = span.start, span.end
            else:
                found_end = start + len(sampled)
                if (start, found_end) != (span.start, span.end):
                    one.problems.append(
                        f"{one.name}: call {call.model_call_id} claims {span.start}..{span.end}, found at {start}"
                    )
                one.is_aligned[start:found_end] = True
                delivered[call.model_call_id] += 1
                _check_streams(one, call, start=start, end=found_end)
            one.is_taken[start:found_end] = True
            _align_context(one, call, start=start, after=end)
            _check_relation(one, call, span=span, before=before, start=start)
            if before is None:
                _check_shared_routes(one, call, calls=calls)
            before = call
            _check_routes(
                one,
                call,
                start=start,
                end=found_end,
                after=end - (span.relation is PrefixRelation.STRICT and end > 0),
            )
            if index or one.row.chunk:
                relations[span.relation] += 1
            end = found_end
        _check_outside(one)
    problems = [p for one in audited for p in one.problems]
    problems += [f"call {name} is trained {n} times" for name, n in delivered.items() if n > 1]
    return _summary(audited, calls=calls, delivered=delivered, relations=relations, problems=problems)


def _locate(one: _Row, sampled: np.ndarray, *, claimed: int, not_before: int) -> int | None:
    """Where these ids stand, trained throughout and not another call's: as claimed if true, else the first
    such place.
    """
    tokens, mask, n = one.row.tokens, one.row.loss_mask, len(sampled)
    if n == 0 or n > len(tokens):
        return None

    def fits(start: int) -> bool:
        here = slice(start, start + n)
        return (
            0 <= start <= len(tokens) - n
            and bool(mask[here].all())
            and not one.is_taken[here].any()
            and np.array_equal(tokens[here], sampled)
        )

    if fits(claimed):
        return claimed
    anywhere = np.flatnonzero(tokens[not_before : len(tokens) - n + 1] == sampled[0]) + not_before
    return next((start for start in anywhere.tolist() if fits(start)), None)


def _num_captured(call: ModelCall) -> int:
    """Sampled tokens that can be trained: of an aborted call, those that every stream of it has."""
    n = len(call.completion_token_ids)
    if call.finish_reason != "abort":
        return n
    n = min(n, len(call.logprobs), len(call.output_versions))
    if call.routed_experts is not None:
        last_routed = call.routed_experts_start + len(
            call.routed_experts
        )  # predicts the token at this position
        n = min(n, last_routed + 1 - len(call.prompt_token_ids))
    return max(n, 0)


def _mark_text(
    one: _Row, sampled: np.ndarray, *, start: int, end: int, text_of: Callable[[np.ndarray], str] | None
) -> None:
    """A claimed span with other ids than sampled: re-tokenised if the text is the call's."""
    same_text = text_of is not None and text_of(one.row.tokens[start:end]) == text_of(sampled)
    one.is_retokenised[start:end] = same_text


def _check_streams(one: _Row, call: ModelCall, *, start: int, end: int) -> None:
    here, n = slice(start, end), end - start
    if not np.array_equal(one.row.rollout_log_probs[here], np.asarray(call.logprobs[:n], dtype=np.float32)):
        one.problems.append(f"{one.name}: log-probs of call {call.model_call_id} differ from those captured")
    if not np.array_equal(one.row.weight_versions[here], call.output_versions[:n]):
        one.problems.append(
            f"{one.name}: weight versions of call {call.model_call_id} differ from those captured"
        )


def _align_context(one: _Row, call: ModelCall, *, start: int, after: int) -> None:
    """The tokens between the last span and this one are the end of this call's prompt."""
    n = start - after
    if n < 0 or n > len(call.prompt_token_ids):
        one.problems.append(
            f"{one.name}: {n} context tokens before call {call.model_call_id}, whose prompt is shorter"
        )
        return
    given = call.prompt_token_ids[len(call.prompt_token_ids) - n :]
    same = one.row.tokens[after:start] == given
    one.is_aligned[after:start] |= same
    if not same.all():
        one.problems.append(
            f"{one.name}: {int((~same).sum())} context tokens before call {call.model_call_id} were changed"
        )


def _check_relation(
    one: _Row, call: ModelCall, *, span: TurnSpan, before: ModelCall | None, start: int
) -> None:
    """A first span stands behind the whole of its prompt; a strict one's prompt repeats the call before it."""
    if before is None:
        if start != len(call.prompt_token_ids):
            one.problems.append(
                f"{one.name}: call {call.model_call_id} opens the row at {start}, its prompt has "
                f"{len(call.prompt_token_ids)} tokens"
            )
        return
    if span.relation is PrefixRelation.SPLIT:
        one.problems.append(f"{one.name}: call {call.model_call_id} claims to open a row it does not open")
    elif span.relation is PrefixRelation.STRICT:
        history = np.concatenate(
            [before.prompt_token_ids, before.completion_token_ids[: _num_captured(before)]]
        )
        if not np.array_equal(call.prompt_token_ids[: len(history)], history):
            one.problems.append(
                f"{one.name}: call {call.model_call_id} claims to continue call {before.model_call_id} strictly"
            )


def _check_routes(one: _Row, call: ModelCall, *, start: int, end: int, after: int) -> None:
    """Every captured row for positions from `after` to the call's last but one stands at that position.

    After a strict boundary `after` includes the last token of the span before: it was first forwarded by this
    call.
    """
    recorded, routes = call.routed_experts, one.row.rollout_routed_experts
    if routes is None:
        return
    if recorded is None:
        one.problems.append(f"{one.name}: call {call.model_call_id} captured no routes, yet the row has some")
        return
    shift = start - len(call.prompt_token_ids)
    first = max(after, call.routed_experts_start + shift)
    last = min(end - 1, len(routes))
    if first < last:
        offset = first - shift - call.routed_experts_start
        captured = recorded[offset : offset + last - first]
        wrong = len(captured) != last - first or not np.array_equal(routes[first:last], captured)
        if wrong:
            one.problems.append(f"{one.name}: routes of call {call.model_call_id} are not those captured")
        one.is_routed[first:last] = True


def _check_shared_routes(one: _Row, call: ModelCall, *, calls: Sequence[ModelCall]) -> None:
    """Rows that the first call of a row left out: each is what the first call to forward that history captured."""
    routes, num_left_out = one.row.rollout_routed_experts, call.routed_experts_start
    if routes is None:
        return
    known = 0
    for other in calls:
        rows, first = other.routed_experts, other.routed_experts_start
        if other is call or rows is None or first > known:
            continue
        stream = np.concatenate([other.prompt_token_ids, other.completion_token_ids])[:num_left_out]
        differ = np.flatnonzero(stream != call.prompt_token_ids[: len(stream)])
        end = min(int(differ[0]) if len(differ) else len(stream), first + len(rows), len(routes))
        if end > known:
            if not np.array_equal(routes[known:end], rows[known - first : end - first]):
                one.problems.append(
                    f"{one.name}: routes shared with call {other.model_call_id} are not those captured"
                )
            known = end


def _check_outside(one: _Row) -> None:
    """Outside the located spans: no mask, no log-prob, no version; and no unrecorded row behind a trained
    token.
    """
    row, outside = one.row, ~one.is_taken
    for what, bad in (
        ("trained", row.loss_mask[outside] != 0),
        ("given a log-prob", row.rollout_log_probs[outside] != 0),
        ("given a weight version", row.weight_versions[outside] != -1),
    ):
        if bad.any():
            one.problems.append(f"{one.name}: {int(bad.sum())} tokens outside every sampled span are {what}")
    if not row.loss_mask[one.is_taken].all():
        one.problems.append(
            f"{one.name}: {int((row.loss_mask[one.is_taken] == 0).sum())} sampled tokens are not trained"
        )
    if row.rollout_routed_experts is None:
        return
    unrecorded = ~one.is_routed & (row.loss_mask[1:] == 1)
    if unrecorded.any():
        one.problems.append(
            f"{one.name}: {int(unrecorded.sum())} trained tokens have a routing row that no call recorded"
        )


def _summary(
    audited: Sequence[_Row],
    *,
    calls: Sequence[ModelCall],
    delivered: Counter[str],
    relations: Counter[PrefixRelation],
    problems: list[str],
) -> Audit:
    num_loss = sum(one.row.num_loss_tokens for one in audited)
    return Audit(
        relations=dict(relations),
        num_aligned=sum(int(one.is_aligned.sum()) for one in audited),
        num_retokenised=sum(int((one.is_retokenised & ~one.is_aligned).sum()) for one in audited),
        num_placeholder=sum(int((~one.is_aligned & ~one.is_retokenised).sum()) for one in audited),
        num_loss_tokens=num_loss,
        num_drifted=sum(int(((one.row.loss_mask == 1) & ~one.is_aligned).sum()) for one in audited),
        num_sampled=sum(_num_captured(call) for call in calls),
        num_delivered=sum(_num_captured(call) for call in calls if delivered[call.model_call_id]),
        problems=tuple(problems),
    )
