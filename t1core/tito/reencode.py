"""What training without token fidelity trains on: each answer as its text encodes, in place of the ids that were
sampled.

For experiments alone. An answer that the encoder splits as the policy did stays as it is. One that it splits otherwise
brings other ids, often more or fewer of them. Log-probs, versions and routes were captured for the sampled ids; they
are laid over the new ones place by place, the last one repeated where there are more, as a trainer must that has only
the text and what the engine reported.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import numpy as np

from t1core.records import TrainingRow, TurnSpan


def reencoded_row(
    row: TrainingRow,
    *,
    encode: Callable[[str], np.ndarray],
    decode: Callable[[np.ndarray], str],
    specials: Collection[int],
) -> TrainingRow:
    """The row with each trained span's ids replaced by those of its text; `specials` have no text and stay.

    Every position takes mask, log-prob, version and routes of the position of the old row that it stands for.
    """
    tokens, source, spans, done = [], [], [], 0
    for span in row.spans:
        sampled = row.tokens[span.start : span.end]
        ids = _reencoded(sampled, encode=encode, decode=decode, specials=specials)
        start = sum(map(len, tokens)) + span.start - done
        tokens += [row.tokens[done : span.start], ids]
        source += [
            np.arange(done, span.start),
            span.start + np.minimum(np.arange(len(ids)), len(sampled) - 1),
        ]
        spans.append(TurnSpan(span.model_call_id, start, start + len(ids), span.relation))
        done = span.end
    tokens.append(row.tokens[done:])
    source.append(np.arange(done, len(row.tokens)))
    old = np.concatenate(source)
    routes = row.rollout_routed_experts
    return replace(
        row,
        tokens=np.concatenate(tokens).astype(np.int32, copy=False),
        response_length=row.response_length + len(old) - len(row.tokens),
        loss_mask=row.loss_mask[old],
        rollout_log_probs=row.rollout_log_probs[old],
        rollout_routed_experts=None if routes is None else routes[np.minimum(old[:-1], len(routes) - 1)],
        weight_versions=row.weight_versions[old],
        spans=tuple(spans),
    )


def _reencoded(
    ids: np.ndarray,
    *,
    encode: Callable[[str], np.ndarray],
    decode: Callable[[np.ndarray], str],
    specials: Collection[int],
) -> np.ndarray:
    pieces = [
        piece if piece[0] in specials else encode(decode(piece)) for piece in _pieces(ids, specials=specials)
    ]
    found = np.concatenate(pieces) if pieces else ids[:0]
    return found if len(found) else ids  # ids without any text


def _pieces(ids: np.ndarray, *, specials: Collection[int]) -> Iterator[np.ndarray]:
    """Stretches between specials, and the specials one by one."""
    is_special = np.isin(ids, list(specials))
    edges = np.flatnonzero(is_special[1:] | is_special[:-1]) + 1
    return (piece for piece in np.split(ids, edges) if len(piece))
