"""Several rows end to end in one [1, T] sequence, and the index tables that all layers share."""

import functools
import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.packed_seq_params import PackedSeqParams


@dataclass(frozen=True)
class ChunkPlan:
    """How rows are cut into chunks for the delta rule.

    Chunks are ordered by their number within the row, and within that by row, longest row first; so chunk j
    of all rows that reach so far is one contiguous run. slot: int64 [T], where each token lies in the layout
    [chunks * size]; widths: for each j, how many rows have a chunk j (never growing); places: of each row, where
    it stands in that order.
    """

    size: int
    slot: torch.Tensor
    widths: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def num_chunks(self) -> int:
        return sum(self.widths)

    def chunks_of(self, row: int) -> list[int]:
        """The chunks of one row, first to last."""
        place = self.places[row]
        starts = itertools.accumulate(self.widths, initial=0)
        return [start + place for start, width in zip(starts, self.widths, strict=False) if place < width]


class PackedRows(PackedSeqParams):
    """Megatron's packed-sequence record with tables that are computed once and used by every layer."""

    @functools.cached_property
    def lengths(self) -> list[int]:
        return (self.cu_seqlens_q[1:] - self.cu_seqlens_q[:-1]).tolist()

    @functools.cached_property
    def offsets(self) -> torch.Tensor:
        """Position of each token within its row, int64 [T]."""
        starts = self.cu_seqlens_q.long()[self.row_of]
        return torch.arange(len(starts), device=starts.device) - starts

    @functools.cached_property
    def row_of(self) -> torch.Tensor:
        """Row of each token, int64 [T]."""
        lengths = self.cu_seqlens_q.diff().long()
        return torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, made when `key` is first asked for: every layer asks for the same tables."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    @functools.cached_property
    def _made(self) -> dict[Hashable, Any]:
        return {}

    def chunks(self, size: int) -> ChunkPlan:
        """The chunk plan for chunks of `size` tokens."""
        return self.once(("chunks", size), lambda: self._plan(size))

    def _plan(self, size: int) -> ChunkPlan:
        counts = -(-self.cu_seqlens_q.diff().long() // size)
        order = torch.argsort(counts, descending=True, stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=order.device)
        most = int(counts.max()) if len(counts) else 0
        widths = (counts[None, :] > torch.arange(most, device=order.device)[:, None]).sum(1)
        first = torch.nn.functional.pad(widths.cumsum(0), (1, 0))
        chunk = first[self.offsets // size] + rank[self.row_of]
        return ChunkPlan(
            size=size,
            slot=chunk * size + self.offsets % size,
            widths=tuple(widths.tolist()),
            places=tuple(rank.tolist()),
        )

    def zigzag(self, cp: int) -> torch.Tensor:
        """Global positions that each context-parallel rank holds, int64 [cp, T / cp].

        Row by row, cut into 2 cp pieces, rank r holds pieces r and 2 cp - 1 - r. Raises ValueError where a
        row's length is no multiple of 2 cp.
        """
        return self.once(("zigzag", cp), lambda: zigzag(self.cu_seqlens_q, cp))


def zigzag(cu_seqlens: torch.Tensor, cp: int) -> torch.Tensor:
    """See `PackedRows.zigzag`; the trainer cuts tokens, masks and routes by this same index."""
    if cp == 1:
        return torch.arange(int(cu_seqlens[-1]), device=cu_seqlens.device)[None]
    ranks: list[list[torch.Tensor]] = [[] for _ in range(cp)]
    for start, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True):
        if (end - start) % (2 * cp):
            raise ValueError(
                f"a row of {end - start} tokens is no multiple of 2 * cp = {2 * cp}: pad it first"
            )
        pieces = torch.arange(start, end, device=cu_seqlens.device).chunk(2 * cp)
        for rank in range(cp):
            ranks[rank] += [pieces[rank], pieces[2 * cp - 1 - rank]]
    return torch.stack([torch.cat(pieces) for pieces in ranks])
