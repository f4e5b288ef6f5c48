"""Several rows end to end in one [1, T] sequence, and the index tables that all layers share."""

import functools
from dataclasses import dataclass

import torch
from megatron.core.packed_seq_params import PackedSeqParams


@dataclass(frozen=True)
class ChunkPlan:
    """How rows are cut into chunks for the delta rule.

    Chunks are ordered by their number within the row, and within that by row, longest row first; so chunk j
    of all rows that reach so far is one contiguous run. slot: int64 [T], where each token lies in the layout
    [chunks * size]; widths: for each j, how many rows have a chunk j (never growing).
    """

    size: int
    slot: torch.Tensor
    widths: tuple[int, ...]

    @property
    def num_chunks(self) -> int:
        return sum(self.widths)


class PackedRows(PackedSeqParams):
    """Megatron's packed-sequence record with tables that are computed once and used by every layer."""

    @functools.cached_property
    def lengths(self) -> list[int]:
        return (self.cu_seqlens_q[1:] - self.cu_seqlens_q[:-1]).tolist()

    @functools.cached_property
    def offsets(self) -> torch.Tensor:
        """Position of each token within its row, int64 [T]."""
        device = self.cu_seqlens_q.device
        return torch.cat([torch.arange(n, device=device) for n in self.lengths])

    @functools.cached_property
    def row_of(self) -> torch.Tensor:
        """Row of each token, int64 [T]."""
        lengths = self.cu_seqlens_q.diff().long()
        return torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)

    def chunks(self, size: int) -> ChunkPlan:
        """The chunk plan for chunks of `size` tokens."""
        if size not in self._plans:
            self._plans[size] = self._plan(size)
        return self._plans[size]

    @functools.cached_property
    def _plans(self) -> dict[int, ChunkPlan]:
        return {}

    def _plan(self, size: int) -> ChunkPlan:
        counts = -(-self.cu_seqlens_q.diff().long() // size)
        order = torch.argsort(counts, descending=True, stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=order.device)
        widths = (counts[None, :] > torch.arange(int(counts.max()), device=order.device)[:, None]).sum(1)
        first = torch.nn.functional.pad(widths.cumsum(0), (1, 0))
        chunk = first[self.offsets // size] + rank[self.row_of]
        return ChunkPlan(size=size, slot=chunk * size + self.offsets % size, widths=tuple(widths.tolist()))

    def zigzag(self, cp: int) -> torch.Tensor:
        """Global positions that each context-parallel rank holds, int64 [cp, T / cp].

        Row by row, cut into 2 cp pieces, rank r holds pieces r and 2 cp - 1 - r. Raises ValueError where a
        row's length is no multiple of 2 cp.
        """
        return zigzag(self.cu_seqlens_q, cp)


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
