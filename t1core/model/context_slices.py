"""Contiguous slices of packed rows for the delta rule under context parallelism, and the ways there and back.

Attention wants zig-zag shares, a recurrence wants contiguous ones. Packed rows [T] are cut into one slice a rank, at
T / cp, 2 T / cp, ... moved to the nearest boundary between two of the recurrence's chunks, counted from the start of
the row in which it falls. So a slice holds whole chunks, a hand-over of state falls where one rank would go from chunk
to chunk, and whatever a slice needs of the convolution's history lies in the slice before it. Slices differ by a
chunk at most, and may be empty where there are fewer chunks than ranks.

Every row is padded to a multiple of 2 cp tokens when it is packed, a filler's row of padding too, so each consists of
exactly 2 cp interleaved segments and cu_seqlens, which count padding, say all there is to know about them.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import all_to_all

from t1core.model.packed_rows import PackedRows


@dataclass(frozen=True)
class ContextSlice:
    """What one context-parallel rank scans.

    rows: the parts of rows in it. before, after: the rank whose slice holds the tokens just before the first and just
    after the last of it, where these belong to the same row; else None. is_any_cut: whether some row spans two slices
    (alike on every rank). sends, receives: tokens exchanged with each rank; order: int64, the arrived tokens in
    the row's order.
    """

    rows: PackedRows
    before: int | None
    after: int | None
    is_any_cut: bool
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    order: torch.Tensor

    @property
    def is_one_piece(self) -> bool:
        """Whether one row goes through the whole slice: what leaves it depends on what enters."""
        return self.before is not None and self.after is not None and len(self.rows.lengths) == 1


def slice_bounds(lengths: list[int], *, cp: int, chunk: int) -> list[int]:
    """Where slices begin and end, [cp + 1], never falling. lengths: tokens of each row."""
    total = sum(lengths)
    bounds, start, row = [0], 0, 0
    for rank in range(1, cp):
        ideal = rank * total / cp
        while ideal >= start + lengths[row]:
            start, row = start + lengths[row], row + 1
        bounds.append(start + min(lengths[row], round((ideal - start) / chunk) * chunk))
    return [*bounds, total]


def cut(rows: PackedRows, *, cp: int, rank: int, chunk: int) -> ContextSlice:
    """The slice of one rank, from the rows of the whole packed sequence."""
    bounds = slice_bounds(rows.lengths, cp=cp, chunk=chunk)
    edges = rows.cu_seqlens_q.tolist()
    cuts = set(bounds) - set(edges)
    low, high = bounds[rank], bounds[rank + 1]
    others = [r for r in range(cp) if bounds[r] < bounds[r + 1]]
    held = rows.zigzag(cp)
    device = held.device
    inside = torch.tensor(bounds[1:-1], device=device)
    owner = torch.bucketize(held, inside, right=True)
    counts = torch.stack([torch.bincount(each, minlength=cp) for each in owner]).tolist()
    arrived = held[
        owner == rank
    ]  # a rank's share ascends, so it leaves in the order of the slices it goes to
    ends = [low, *(edge for edge in edges if low < edge < high), high] if low < high else [low]
    return ContextSlice(
        rows=_rows([end - low for end in ends], device=device),
        before=max(r for r in others if r < rank) if low in cuts and low < high else None,
        after=min(r for r in others if r > rank) if high in cuts and low < high else None,
        is_any_cut=bool(cuts),
        sends=tuple(counts[rank]),
        receives=tuple(row[rank] for row in counts),
        order=torch.argsort(arrived),
    )


def to_slice(x: torch.Tensor, own: ContextSlice, group: dist.ProcessGroup) -> torch.Tensor:
    """[T / cp, ...] of zig-zag positions to [tokens of the slice, ...] in order."""
    arrived = all_to_all(group, x.contiguous(), list(own.receives), list(own.sends))
    return arrived.index_select(0, own.order)


def to_zigzag(x: torch.Tensor, own: ContextSlice, group: dist.ProcessGroup) -> torch.Tensor:
    """The inverse of `to_slice`."""
    leaving = x.index_select(0, torch.argsort(own.order))
    return all_to_all(group, leaving, list(own.sends), list(own.receives))


def with_halo(
    x: torch.Tensor, own: ContextSlice, *, size: int, group: dist.ProcessGroup
) -> tuple[torch.Tensor, PackedRows]:
    """The slice [T, ...] with the `size` tokens before it, where these belong to its first row, and its rows with
    those tokens counted in. Every rank calls. Gradients of the borrowed tokens go back to their owner.
    """
    x = _Halo.apply(x, own.before, own.after, size, group)
    if own.before is None:
        return x, own.rows
    first, *rest = own.rows.lengths
    ends = torch.tensor([0, first + size, *rest]).cumsum(0).tolist()
    return x, _rows(ends, device=x.device)


class _Halo(torch.autograd.Function):
    """Each slice lends its last tokens to the next and borrows those of the one before."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, before: int | None, after: int | None, size: int, group: dist.ProcessGroup
    ) -> torch.Tensor:
        ctx.ends = before, after, size, group
        assert after is None or len(x) >= size, "a slice is shorter than the convolution's history"
        halo = x.new_empty(size if before is not None else 0, *x.shape[1:])
        tail = x[len(x) - size :].contiguous() if after is not None else None
        for work in exchange(group, send=tail, to=after, receive=halo, source=before):
            work.wait()
        return torch.cat([halo, x])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        before, after, size, group = ctx.ends
        borrowed = size if before is not None else 0
        own = grad[borrowed:].clone()
        lent = own.new_empty(size if after is not None else 0, *own.shape[1:])
        returned = grad[:borrowed].contiguous()
        for work in exchange(group, send=returned, to=before, receive=lent, source=after):
            work.wait()
        if after is not None:
            own[len(own) - size :] += lent
        return own, None, None, None, None


def exchange(
    group: dist.ProcessGroup,
    *,
    send: torch.Tensor | None = None,
    to: int | None = None,
    receive: torch.Tensor | None = None,
    source: int | None = None,
) -> list[dist.Work]:
    """Begin to send to one rank of the group and to receive from another; None leaves a side out."""
    ops = []
    if to is not None:
        ops.append(dist.P2POp(dist.isend, send, dist.get_global_rank(group, to), group))
    if source is not None:
        ops.append(dist.P2POp(dist.irecv, receive, dist.get_global_rank(group, source), group))
    return dist.batch_isend_irecv(ops) if ops else []


def _rows(ends: list[int], *, device: torch.device) -> PackedRows:
    """Rows that end at these places, the first being 0; [0] for none."""
    cu_seqlens = torch.tensor(ends, dtype=torch.int32, device=device)
    longest = max((b - a for a, b in itertools.pairwise(ends)), default=0)
    return PackedRows(
        qkv_format="thd",
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_kv=cu_seqlens,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )
