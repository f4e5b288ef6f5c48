"""The gated delta rule in plain torch, over packed rows.

S_t = exp(g_t) S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T and o_t = S_t q_t, a chunk at a time: within
a chunk by inverting one unit triangular matrix (the UT transform), across chunks by carrying S in fp32. Rows
are independent. The two steps that autograd would make slow have gradients written by hand. Under context
parallelism the state of a row that goes on elsewhere comes and goes by a `Handover`.
"""

from collections.abc import Sequence
from typing import Any

import torch

from t1core.model.packed_rows import ChunkPlan, PackedRows
from t1core.model.state_handover import Handover

CHUNK = 32  # on a CPU core, 32 is about a third faster than 64


def l2norm(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Divide the last dimension by its Euclidean norm, in fp32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + eps)).type_as(x)


def chunk_gated_delta_rule(
    qkv: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    rows: PackedRows,
    num_key_heads: int,
    key_dim: int,
    chunk_size: int | None = None,
    handover: Handover | None = None,
) -> torch.Tensor:
    """Outputs of the gated delta rule.

    qkv [T, (2 key heads * key_dim) + value heads * value_dim], queries and keys not yet normalised; g [T,
    value heads] log-decays, fp32; beta [T, value heads]. Value head h reads key head h // (value heads / key
    heads). `handover` brings the state in which the first row starts and takes the one in which the last row ends, in
    both directions. Returns [T, value heads, value_dim] in qkv's dtype.
    """
    plan = rows.chunks(chunk_size or CHUNK)
    num_value_heads = g.shape[-1]
    repeat = num_value_heads // num_key_heads
    keys = num_key_heads * key_dim

    def cut(x: torch.Tensor, heads: int) -> torch.Tensor:
        """[T, heads * d] to [chunks, heads, size, d], zeros where a row's last chunk is not full."""
        wide = x.float()
        slots = wide.new_zeros(plan.num_chunks * plan.size, x.shape[-1]).index_copy(0, plan.slot, wide)
        return slots.view(plan.num_chunks, plan.size, heads, x.shape[-1] // heads).transpose(1, 2)

    q, k, v = qkv.split([keys, keys, qkv.shape[-1] - 2 * keys], dim=-1)
    q = l2norm(cut(q, num_key_heads)) * key_dim**-0.5
    k = l2norm(cut(k, num_key_heads))
    v = cut(v, num_value_heads).unflatten(1, (num_key_heads, repeat))
    g, beta = (cut(x, num_value_heads).squeeze(-1).unflatten(1, (num_key_heads, repeat)) for x in (g, beta))
    out = _scan(q, k, v, g, beta, plan, handover)  # [chunks, key heads, repeat, size, value_dim]
    out = out.permute(0, 3, 1, 2, 4).reshape(plan.num_chunks * plan.size, num_value_heads, v.shape[-1])
    return out.index_select(0, plan.slot).type_as(qkv)


def _scan(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    plan: ChunkPlan,
    handover: Handover | None,
) -> torch.Tensor:
    """q, k [chunks, key heads, size, key_dim]; v [chunks, key heads, repeat, size, value_dim]; g and beta
    without the last dimension. Returns v's shape.
    """
    total = g.cumsum(-1)  # log-decay since the chunk's start
    later = torch.ones(plan.size, plan.size, dtype=torch.bool, device=q.device).triu(1)
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(later, float("-inf")).exp()
    since_start, beta = total.exp().unsqueeze(-1), beta.unsqueeze(-1)
    key, k_t = k.unsqueeze(2), k.transpose(-1, -2)
    solve = _UnitLowerInverse.apply((k @ k_t).unsqueeze(2) * (decay * beta))
    return _Carry.apply(
        solve @ (v * beta),
        solve @ (key * (beta * since_start)),
        (q @ k_t).unsqueeze(2) * decay,
        q.unsqueeze(2) * since_start,
        key * (total[..., -1:] - total).exp().unsqueeze(-1),
        since_start[..., -1:, :],
        plan,
        handover,
    )


class _UnitLowerInverse(torch.autograd.Function):
    """(I + the part of x below its diagonal)^-1 for x [..., n, n]."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand_as(x)
        inverse = torch.linalg.solve_triangular(x, identity, upper=False, unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (inverse,) = ctx.saved_tensors
        across = inverse.transpose(-1, -2)
        return (across @ grad @ across).tril_(-1).neg_()


class _Carry(torch.autograd.Function):
    """Carries each row's state from chunk to chunk.

    new_j = u_j - w_j S_j; out_j = query_j S_j + attention_j new_j; S_{j+1} = whole_j S_j + kept_j^T new_j.
    Tensors are [chunks, heads..., size, *], chunks ordered as in ChunkPlan; only the state's own steps are
    sequential. A state that arrives starts the first row, and the one that the last row ends in departs.
    """

    @staticmethod
    def forward(
        ctx: Any,
        u: torch.Tensor,
        w: torch.Tensor,
        attention: torch.Tensor,
        query: torch.Tensor,
        kept: torch.Tensor,
        whole: torch.Tensor,
        plan: ChunkPlan,
        handover: Handover | None,
    ) -> torch.Tensor:
        states = u.new_zeros(*w.shape[:-2], w.shape[-1], u.shape[-1])
        new = torch.empty_like(u)
        kept_t = kept.transpose(-1, -2)
        if handover:
            arrived = handover.arrive(lambda: _last_row_map(u, w, kept_t, whole, plan.chunks_of(-1)))
            if arrived is not None:
                states[plan.chunks_of(0)[0]] = arrived
        begin, follows = 0, (*plan.widths[1:], 0)[: len(plan.widths)]
        for width, follow in zip(plan.widths, follows, strict=True):
            end = begin + width
            torch.sub(u[begin:end], w[begin:end] @ states[begin:end], out=new[begin:end])
            if follow:
                here = slice(begin, begin + follow)
                nxt = states[end : end + follow]
                torch.mul(states[here], whole[here], out=nxt)
                nxt += kept_t[here] @ new[here]
            begin = end
        if handover:
            handover.depart(lambda: _next_state(states, new, kept_t, whole, plan.chunks_of(-1)[-1]))
        ctx.save_for_backward(w, attention, query, kept, whole, states, new)
        ctx.plan, ctx.handover = plan, handover
        out = query @ states + attention @ new
        if handover:
            handover.settle()
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        w, attention, query, kept, whole, states, new = ctx.saved_tensors
        plan, handover = ctx.plan, ctx.handover
        grad_new = attention.transpose(-1, -2) @ grad
        grad_next = torch.zeros_like(states)  # of the state that each chunk hands on
        carried = query.transpose(-1, -2) @ grad  # of the state that each chunk starts from, so far
        w_t = w.transpose(-1, -2)

        def arrive(here: slice, arriving: torch.Tensor) -> None:
            grad_next[here] = arriving
            grad_new[here] += kept[here] @ arriving
            carried[here] += arriving * whole[here]

        if handover:
            arriving = handover.arrive_back(
                lambda: _first_row_gradient(grad_new, carried, w_t, kept, whole, plan.chunks_of(0))
            )
            if arriving is not None:
                last = plan.chunks_of(-1)[-1]
                arrive(slice(last, last + 1), arriving.unsqueeze(0))
        end, follow = len(w), 0
        for width in reversed(plan.widths):
            begin = end - width
            if follow:
                arrive(slice(begin, begin + follow), carried[end : end + follow])
            carried[begin:end] -= w_t[begin:end] @ grad_new[begin:end]
            end, follow = begin, width
        if handover:
            handover.depart_back(lambda: carried[plan.chunks_of(0)[0]])
        state_t = states.transpose(-1, -2)
        gradients = (
            grad_new,
            -(grad_new @ state_t),
            grad @ new.transpose(-1, -2),
            grad @ state_t,
            new @ grad_next.transpose(-1, -2),
            (grad_next * states).sum((-2, -1), keepdim=True),
        )
        if handover:
            handover.settle()
        return *gradients, None, None


def _next_state(
    states: torch.Tensor, new: torch.Tensor, kept_t: torch.Tensor, whole: torch.Tensor, chunk: int
) -> torch.Tensor:
    """The state in which a chunk ends, by the very operations that carry it to the next one."""
    here = slice(chunk, chunk + 1)
    state = states[here] * whole[here]
    state += kept_t[here] @ new[here]
    return state[0]


def _last_row_map(
    u: torch.Tensor, w: torch.Tensor, kept_t: torch.Tensor, whole: torch.Tensor, chunks: Sequence[int]
) -> torch.Tensor:
    """[M | B], [heads..., key_dim, key_dim + value_dim]: a row that starts in state S ends in M S + B."""
    key_dim = w.shape[-1]
    state = u.new_zeros(*w.shape[1:-2], key_dim, key_dim + u.shape[-1])
    state[..., :key_dim] = torch.eye(key_dim, dtype=u.dtype, device=u.device)
    for j in chunks:
        new = (w[j] @ state).neg_()
        new[..., key_dim:] += u[j]
        state = state * whole[j] + kept_t[j] @ new
    return state


def _first_row_gradient(
    grad_new: torch.Tensor,
    carried: torch.Tensor,
    w_t: torch.Tensor,
    kept: torch.Tensor,
    whole: torch.Tensor,
    chunks: Sequence[int],
) -> torch.Tensor:
    """What a row's own outputs say to the state that it starts from, with nothing coming from where it ends."""
    arriving = torch.zeros_like(carried[0])
    for j in reversed(chunks):
        arriving = carried[j] + arriving * whole[j] - w_t[j] @ (grad_new[j] + kept[j] @ arriving)
    return arriving
