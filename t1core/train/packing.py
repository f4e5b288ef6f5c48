"""Packing: rows of a batch into micro-batches, and every stream of a row through one and the same index.

A micro-batch is one packed sequence [P] of whole rows. Position p of it holds token `token_source[p]` of the
batch, predicts token `target_source[p]`, and is routed by route `route_source[p]`; -1 means that there is
none (padding, or the last token of a row, which predicts nothing). Context parallelism, padding and row order
are all applied to those indices once, so tokens, targets, masks, log-probs, values and routes cannot come
apart.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from t1core.model.packed_rows import zigzag
from t1core.records.batch import Batch


@dataclass(frozen=True)
class MicroBatch:
    """This rank's share of one packed sequence.

    rows: batch rows in it, () for a filler that only keeps ranks in step. token_source, target_source,
    route_source: int64 [P], -1 for none. position_ids: int64 [P], within the row. cu_seqlens: int32 [segments
    + 1] over the whole packed sequence (all context-parallel ranks together), padding included.
    """

    rows: tuple[int, ...]
    token_source: np.ndarray
    target_source: np.ndarray
    route_source: np.ndarray
    position_ids: np.ndarray
    cu_seqlens: np.ndarray

    def __len__(self) -> int:
        return len(self.token_source)

    def gather_tokens(self, tokens: np.ndarray) -> np.ndarray:
        """Input ids int64 [P]; padding is token id 0."""
        return _take(tokens, self.token_source).astype(np.int64)

    def gather_targets(self, stream: np.ndarray) -> np.ndarray:
        """A per-token stream of the batch [T] -> [P]: entry p belongs to the token that position p predicts;
        else 0."""
        return _take(stream, self.target_source)

    def gather_routes(self, routes: np.ndarray, *, num_experts: int) -> np.ndarray:
        """Routes of the batch [T - rows, L, k] -> [P, L, k] in the record's own dtype, ascending within k.

        Positions without a recorded route (padding, a row's last token) take turns over all experts, whatever
        the rows' lengths, so that they never pile onto a few. The turn starts at the first row's number:
        micro-batches of one row each would otherwise all begin with expert 0.
        """
        _, num_layers, topk = routes.shape
        filled = np.empty((len(self), num_layers, topk), dtype=routes.dtype)
        known = self.route_source >= 0
        filled[known] = routes[self.route_source[known]]
        turn = np.arange(np.count_nonzero(~known)) + (self.rows[0] if self.rows else 0)
        spread = (turn[:, None] * topk + np.arange(topk)) % num_experts
        filled[~known] = np.sort(spread, axis=1)[:, None, :]
        return filled


def assign_rows(lengths: np.ndarray, *, max_tokens: int, num_ranks: int) -> list[list[tuple[int, ...]]]:
    """Which rows go into which micro-batch of which data-parallel rank: result[rank][i] are row numbers.

    As few micro-batches of at most `max_tokens` tokens as longest-first placement finds, the same number for
    every rank (expert parallelism needs them in step), loads levelled. A longer row gets a micro-batch of its
    own. When there are fewer rows than slots some micro-batches are empty. A pure function of its arguments.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-int(lengths[row]), row))
    slots = num_ranks * max(1, math.ceil(int(lengths.sum()) / (max_tokens * num_ranks)))
    while (bins := _place(order, lengths=lengths, slots=slots, max_tokens=max_tokens)) is None:
        slots += num_ranks
    return [bins[rank::num_ranks] for rank in range(num_ranks)]


def pack_rows(
    batch: Batch, *, rows: Sequence[int], row_multiple: int = 1, cp_size: int = 1, cp_rank: int = 0
) -> MicroBatch:
    """Index one micro-batch for one context-parallel rank.

    Each row is padded to a multiple of `row_multiple`, which must divide into 2 * cp_size chunks under
    context parallelism; rank r of c owns chunks r and 2c - 1 - r of each row (zig-zag). No rows at all make
    one segment of padding.
    """
    assert cp_size == 1 or row_multiple % (2 * cp_size) == 0, "rows must divide into 2 * cp_size chunks"
    starts, lengths = batch.cu_seqlens, batch.lengths()
    columns = [
        _row_columns(start=int(starts[row]), length=int(lengths[row]), row=row, multiple=row_multiple)
        for row in rows
    ] or [np.stack([np.full(row_multiple, -1)] * 3 + [np.arange(row_multiple)])]
    stacked = np.concatenate(columns, axis=1)
    cu_seqlens = np.cumsum([0] + [column.shape[1] for column in columns]).astype(np.int32)
    held = zigzag(torch.from_numpy(cu_seqlens), cp_size)[cp_rank].numpy()
    token_source, target_source, route_source, position_ids = stacked[:, held]
    return MicroBatch(
        rows=tuple(rows),
        token_source=token_source,
        target_source=target_source,
        route_source=route_source,
        position_ids=position_ids,
        cu_seqlens=cu_seqlens,
    )


def _row_columns(*, start: int, length: int, row: int, multiple: int) -> np.ndarray:
    """token, target and route source and position of one padded row, int64 [4, padded]."""
    place = np.arange(-(-length // multiple) * multiple)
    token = np.where(place < length, start + place, -1)
    target = np.where(place < length - 1, start + place + 1, -1)
    # A row has one route fewer than tokens, so the batch's routes before this row are short by `row`.
    route = np.where(place < length - 1, start - row + place, -1)
    return np.stack([token, target, route, place])


def _place(
    order: list[int], *, lengths: np.ndarray, slots: int, max_tokens: int
) -> list[tuple[int, ...]] | None:
    """Longest row first into the emptiest slot; None if some slot with several rows overflows."""
    heap = [(0, slot) for slot in range(slots)]
    bins: list[list[int]] = [[] for _ in range(slots)]
    for row in order:
        load, slot = heapq.heappop(heap)
        load += int(lengths[row])
        if bins[slot] and load > max_tokens:
            return None
        bins[slot].append(row)
        heapq.heappush(heap, (load, slot))
    return [tuple(sorted(rows)) for rows in bins]


def _take(stream: np.ndarray, source: np.ndarray) -> np.ndarray:
    return np.where(source >= 0, stream[np.maximum(source, 0)], np.zeros((), dtype=stream.dtype))
