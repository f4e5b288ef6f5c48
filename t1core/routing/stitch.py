"""Stitching: the rows of a trial's calls, laid end to end along its token stream.

Each call reports rows from `routed_experts_start` on, so a turn sends only what it newly forwarded. Where
calls overlap the first recording stands: it is the one the sampled tokens were drawn under.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


class MissingRoutes(RuntimeError):
    """Rows that replay needs were not recorded. Aborts the rollout: dropping the sample would select by
    capture.
    """


@dataclass(frozen=True)
class RoutePiece:
    """Rows of one call placed in a token stream: rows[i] ([n, L, k]) routes the token at position start + i.

    `source` names the call (and engine) for messages; rows None means that the call captured nothing.
    """

    source: str
    rows: np.ndarray | None
    start: int


def stitch(pieces: Sequence[RoutePiece], *, loss_mask: np.ndarray) -> np.ndarray:
    """Lay pieces, ordered by start, over a stream of len(loss_mask) tokens; returns [tokens - 1, L, k].

    Row j routes the position that predicts token j + 1. An unrecorded row j copies row j - 1 where token j +
    1 carries no loss; where it does, or where there is no row j - 1, MissingRoutes names the call.
    """
    num_rows = len(loss_mask) - 1
    for piece in pieces:
        if piece.rows is None:
            raise MissingRoutes(f"{piece.source}: no routes were captured")
    assert pieces, "a token stream comes from at least one call"
    first = pieces[0].rows
    assert first is not None
    stitched = np.empty((num_rows, *first.shape[1:]), dtype=first.dtype)
    covered = 0
    for piece in pieces:
        rows = piece.rows
        assert rows is not None
        if rows.shape[1:] != first.shape[1:] or rows.dtype != first.dtype:
            raise MissingRoutes(
                f"{piece.source}: rows of {rows.shape[1:]} {rows.dtype}, "
                f"the trial's are {first.shape[1:]} {first.dtype}"
            )
        end = piece.start + len(rows)
        if end > num_rows:
            raise MissingRoutes(f"{piece.source}: rows up to {end} in a stream with {num_rows}")
        if piece.start > covered:
            _fill(stitched, start=covered, end=piece.start, loss_mask=loss_mask, source=piece.source)
        if end > covered:
            begin = max(covered, piece.start)
            stitched[begin:end] = rows[begin - piece.start :]
            covered = end
    if covered < num_rows:
        _fill(stitched, start=covered, end=num_rows, loss_mask=loss_mask, source=pieces[-1].source)
    return stitched


def _fill(stitched: np.ndarray, *, start: int, end: int, loss_mask: np.ndarray, source: str) -> None:
    """Copy row start - 1 over rows start..end-1, none of which may predict a token that carries loss."""
    with_loss = np.flatnonzero(loss_mask[start + 1 : end + 1])
    if start == 0 or len(with_loss):
        row = start + int(with_loss[0]) if len(with_loss) else 0
        why = "it predicts a trained token" if len(with_loss) else "there is no row before it"
        raise MissingRoutes(
            f"{source}: routing row {row} was not recorded and can't be filled in, since {why}"
        )
    stitched[start:end] = stitched[start - 1]
