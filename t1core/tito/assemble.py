"""The assembler: the model calls of one trial become training rows.

    for each call:   find the branch it continues (strict, normalized, retokenized: in this order, longest
    branch first)
        found:       append the new part of its prompt (mask 0), then its sampled ids (mask 1)
        not found:   split: open a new chunk with its whole prompt (mask 0) and its sampled ids (mask 1)

Sampled ids are the training ids; a harness's re-tokenised copy of them never enters. Since a call is appended
once and what its successors repeat of it enters as context, each sampled token is trained exactly once. Mask,
log-probs, versions and routes are laid out by the same offsets.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from t1core.records import ModelCall, PrefixRelation, RowStatus, TrainingRow, TurnSpan
from t1core.routing import MissingRoutes, RoutePiece, stitch
from t1core.tito.relation import Match, TextOf, match_call

_TRIED = (PrefixRelation.STRICT, PrefixRelation.NORMALIZED, PrefixRelation.RETOKENIZED)


class UnresolvedRetry(ValueError):
    """Several calls answered one prompt and nothing tells which of them the conversation continued from."""


@dataclass
class _Chunk:
    """A row being laid out. `tail` is the call it ends with."""

    tail: ModelCall
    ids: list[np.ndarray] = field(default_factory=list)
    length: int = 0
    turns: list[tuple[ModelCall, int, PrefixRelation]] = field(
        default_factory=list
    )  # (call, start, relation)
    routes: list[RoutePiece] = field(default_factory=list)


def assemble(
    calls: Sequence[ModelCall], *, reward: float, status: RowStatus, text_of: TextOf | None = None
) -> tuple[TrainingRow, ...]:
    """Lay out the calls of one trial, in the order they were made; returns one row a chunk.

    text_of: ids -> text, special tokens included, for harnesses that re-tokenise; our own agent needs none.
    Calls that sampled nothing are skipped, an aborted call is cut where the shortest of its streams ends, and of
    several answers to one prompt only the one the conversation continued from is trained. Raises ValueError for
    calls of several trials or with per-token arrays of unequal lengths, UnresolvedRetry when no such answer
    stands out, MissingRoutes when a call lacks rows that replay needs.
    """
    cut = [_cut_aborted(call) for call in calls]
    sampled = [call for call in cut if len(call.completion_token_ids)]
    trials = sorted({call.rollout_id for call in sampled})
    if len(trials) > 1:
        raise ValueError(f"calls of several trials: {trials}; assemble one at a time")
    sampled = _without_retries(sampled, text_of=text_of)
    with_routes = any(call.routed_experts is not None for call in sampled)
    chunks: list[_Chunk] = []
    for call in sampled:
        _check(call, with_routes=with_routes)
        chunk, found = _branch(chunks, call=call, text_of=text_of)
        if chunk is None or found is None:
            relation = PrefixRelation.SPLIT if chunks else PrefixRelation.STRICT
            chunk, found = (
                _Chunk(tail=call, routes=_shared_routes(chunks, call=call)),
                Match(relation, matched=0),
            )
            chunks.append(chunk)
        _append(chunk, call=call, found=found)
    return tuple(
        _row(chunk, index=index, reward=reward, status=status, with_routes=with_routes)
        for index, chunk in enumerate(chunks)
    )


def _cut_aborted(call: ModelCall) -> ModelCall:
    """An aborted call, with ids, log-probs, versions and routes cut at the same place: the shortest of them.

    Rows in excess of what the ids allow are not cut: they belong to something else, and the count says so later.
    """
    if call.finish_reason != "abort":
        return call
    num_rows = len(call.prompt_token_ids) - 1 - call.routed_experts_start  # of the prompt
    lengths = [len(call.completion_token_ids), len(call.logprobs), len(call.output_versions)]
    rows = call.routed_experts
    if rows is not None and len(rows) <= num_rows + lengths[0]:
        n = max(0, min(*lengths, len(rows) - num_rows))
        rows = rows[: num_rows + n]
    else:
        n = min(lengths)
    return replace(
        call,
        completion_token_ids=call.completion_token_ids[:n],
        logprobs=call.logprobs[:n],
        output_versions=call.output_versions[:n],
        routed_experts=rows,
    )


def _without_retries(calls: list[ModelCall], *, text_of: TextOf | None) -> list[ModelCall]:
    """Leave out answers that a client asked for again and did not go on from.

    Answers to one prompt are retries of each other as long as none of them was continued. Of such a round the
    continued ones stay; if there is none, the only whole one. A prompt that comes again after one of its answers
    was continued is no retry: the client rolled back, and a new round begins.
    """
    dropped: set[int] = set()
    for siblings in _same_prompt(calls):
        continued_at = _continuations(siblings, calls=calls, text_of=text_of)
        rounds: list[list[int]] = [[]]
        for index in siblings:
            if any(continued_at.get(one, index) < index for one in rounds[-1]):
                rounds.append([])
            rounds[-1].append(index)
        for members in rounds:
            dropped.update(set(members) - _kept(members, calls=calls, continued=continued_at.keys()))
    return [call for index, call in enumerate(calls) if index not in dropped]


def _same_prompt(calls: list[ModelCall]) -> list[list[int]]:
    """Which calls answered one prompt, where several did. Lengths tell most prompts apart at no cost."""
    by_length: dict[int, list[list[int]]] = {}
    for index, call in enumerate(calls):
        groups = by_length.setdefault(len(call.prompt_token_ids), [])
        for group in groups:
            if np.array_equal(calls[group[0]].prompt_token_ids, call.prompt_token_ids):
                group.append(index)
                break
        else:
            groups.append([index])
    return [group for groups in by_length.values() for group in groups if len(group) > 1]


def _continuations(siblings: list[int], *, calls: list[ModelCall], text_of: TextOf | None) -> dict[int, int]:
    """Of calls that answered one prompt: which was continued, and by which call first.

    A call continues one of them: by the first relation that tells, the longest match, and at last the latest
    answer, which is the one a client that asked again has in hand.
    """
    found: dict[int, int] = {}
    for index in range(siblings[0] + 1, len(calls)):
        earlier = [one for one in siblings if one < index and index not in siblings]
        for relation in _TRIED:
            matches = [
                (match.matched, one)
                for one in earlier
                if (match := match_call(calls[one], calls[index], relation=relation, text_of=text_of))
            ]
            if matches:
                found.setdefault(max(matches)[1], index)
                break
    return found


def _kept(members: list[int], *, calls: list[ModelCall], continued: Collection[int]) -> set[int]:
    if kept := {one for one in members if one in continued}:
        return kept
    whole = [one for one in members if calls[one].finish_reason != "abort"]
    for candidates in (members, whole):
        if len(candidates) == 1:
            return set(candidates)
    names = [calls[one].model_call_id for one in members]
    raise UnresolvedRetry(
        f"rollout {calls[members[0]].rollout_id}: calls {names} answer one prompt, and none was continued"
    )


def _branch(
    chunks: list[_Chunk], *, call: ModelCall, text_of: TextOf | None
) -> tuple[_Chunk | None, Match | None]:
    """The chunk whose tail this call continues: first relation that holds anywhere, longest tail first."""
    longest_first = sorted(
        chunks, key=lambda c: len(c.tail.prompt_token_ids) + len(c.tail.completion_token_ids), reverse=True
    )
    for relation in _TRIED:
        for chunk in longest_first:
            found = match_call(chunk.tail, call, relation=relation, text_of=text_of)
            if found is not None:
                return chunk, found
    return None, None


def _shared_routes(chunks: list[_Chunk], *, call: ModelCall) -> list[RoutePiece]:
    """Rows before a call's first, for a call that opens a chunk although its engine knew its history: a branch off a
    history whose rows earlier calls captured. Those are the rows of a chunk that begins with the same tokens.
    """
    missing = call.routed_experts_start
    if not missing or call.routed_experts is None:
        return []
    for chunk in chunks:
        tokens = np.concatenate(chunk.ids)
        if len(tokens) > missing and np.array_equal(tokens[:missing], call.prompt_token_ids[:missing]):
            return [
                replace(piece, rows=piece.rows[: missing - piece.start])
                for piece in chunk.routes
                if piece.rows is not None and piece.start < missing
            ]
    return []


def _append(chunk: _Chunk, *, call: ModelCall, found: Match) -> None:
    """Lay the call's new context and sampled ids behind what the chunk has."""
    prompt, boundary = call.prompt_token_ids, found.matched
    context = prompt[boundary:]
    shift = chunk.length - boundary  # from positions in this call to positions in the row
    # the chunk's last token was sampled but not forwarded; this call did so, if it is the very token before
    # its context
    is_same_token = (
        found.relation in (PrefixRelation.STRICT, PrefixRelation.NORMALIZED) and found.output_trim == 0
    )
    first = max(0, boundary - 1 if is_same_token else boundary)
    rows = call.routed_experts
    if rows is not None:
        skipped = max(0, first - call.routed_experts_start)
        chunk.routes.append(
            RoutePiece(
                source=f"call {call.model_call_id} of rollout {call.rollout_id}",
                rows=rows[skipped:],
                start=call.routed_experts_start + skipped + shift,
            )
        )
    start = chunk.length + len(context)
    chunk.ids += [context, call.completion_token_ids]
    chunk.turns.append((call, start, found.relation))
    chunk.length = start + len(call.completion_token_ids)
    chunk.tail = call


def _row(chunk: _Chunk, *, index: int, reward: float, status: RowStatus, with_routes: bool) -> TrainingRow:
    n = chunk.length
    loss_mask = np.zeros(n, dtype=np.uint8)
    logprobs = np.zeros(n, dtype=np.float32)
    versions = np.full(n, -1, dtype=np.int32)
    spans = []
    for call, start, relation in chunk.turns:
        end = start + len(call.completion_token_ids)
        loss_mask[start:end] = 1
        logprobs[start:end] = call.logprobs
        versions[start:end] = call.output_versions
        spans.append(TurnSpan(model_call_id=call.model_call_id, start=start, end=end, relation=relation))
    return TrainingRow(
        rollout_id=chunk.tail.rollout_id,
        chunk=index,
        tokens=np.concatenate(chunk.ids).astype(np.int32, copy=False),
        response_length=n - spans[0].start,
        loss_mask=loss_mask,
        rollout_log_probs=logprobs,
        rollout_routed_experts=stitch(chunk.routes, loss_mask=loss_mask) if with_routes else None,
        weight_versions=versions,
        reward=reward,
        status=status,
        spans=tuple(spans),
    )


def _check(call: ModelCall, *, with_routes: bool) -> None:
    n, name = len(call.completion_token_ids), f"call {call.model_call_id} of rollout {call.rollout_id}"
    if len(call.logprobs) != n or len(call.output_versions) != n:
        raise ValueError(
            f"{name}: {n} sampled ids, {len(call.logprobs)} log-probs, {len(call.output_versions)} versions"
        )
    if not with_routes:
        return
    if call.routed_experts is None:
        raise MissingRoutes(f"{name}: no routes were captured")
    expected = len(call.prompt_token_ids) + n - 1 - call.routed_experts_start
    if len(call.routed_experts) != expected:
        raise MissingRoutes(
            f"{name}: {len(call.routed_experts)} routing rows from {call.routed_experts_start}, "
            f"expected {expected}; the engine returned stale, short or full-length rows"
        )
