"""The layers of the network over fused kernels; each computes what its plain parent does, in one pass over memory.

Accumulation is in fp32 throughout, where plain torch code rounds to bf16 between two operations, so results differ from
the plain path's by bf16's rounding: `tests/model/test_fused_kernels.py` says how much.
"""

from typing import Any

import torch
import torch.nn.functional as F

from t1core.model import kernels
from t1core.model.attention import PackedAttention
from t1core.model.experts import StackedExperts
from t1core.model.gated_delta_net import TorchGatedDeltaNet
from t1core.model.norm import RMSNorm
from t1core.model.packed_rows import PackedRows
from t1core.model.state_handover import Handover


class FusedRMSNorm(RMSNorm):
    """One kernel forward and one backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from t1core.model import triton_kernels

        return triton_kernels.rms_norm(x, self.weight, shift=float(self.shift), eps=self.eps)


class FusedPlainRMSNorm(FusedRMSNorm):
    """The variant inside GatedDeltaNet, whose weight is never zero-centred."""

    zero_centered = False


class FlashAttention(PackedAttention):
    """Flash attention over all packed rows in one call; across context-parallel ranks as its parent."""

    def _attend_rows(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: PackedRows
    ) -> torch.Tensor:
        edges, longest = rows.cu_seqlens_q, rows.max_seqlen_q
        # What torch's own varlen_attn calls; its public signature changed from release to release.
        out, *_ = torch.ops.aten._flash_attention_forward(
            query, key, value, edges, edges, longest, longest, 0.0, True, False, scale=self.scale
        )
        return out


class FusedExperts(StackedExperts):
    """Grouped matrix products as in its parent, with SwiGLU and the gate weights in one kernel between them."""

    def _activate(self, both: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
        from t1core.model import triton_kernels

        return triton_kernels.swiglu(both, probs)


class FusedGatedDeltaNet(TorchGatedDeltaNet):
    """flash-linear-attention's convolution and chunked delta rule; norm and gate in one kernel after them."""

    chunk = kernels.FUSED_CHUNK

    def _convolve(self, x: torch.Tensor, weight: torch.Tensor, rows: PackedRows) -> torch.Tensor:
        if not len(x):
            return super()._convolve(x, weight, rows)
        from fla.modules.causal_conv1d import causal_conv1d

        out, _ = causal_conv1d(
            x.unsqueeze(0), weight, activation="silu", cu_seqlens=_edges(rows), chunk_indices=_chunks(rows)
        )
        return out.squeeze(0)

    def _recur(
        self,
        qkv: torch.Tensor,
        alpha: torch.Tensor,
        beta: torch.Tensor,
        decay: torch.Tensor,
        bias: torch.Tensor,
        *,
        rows: PackedRows,
        num_key_heads: int,
        handover: Handover | None,
    ) -> torch.Tensor:
        if not len(qkv):
            return super()._recur(
                qkv, alpha, beta, decay, bias, rows=rows, num_key_heads=num_key_heads, handover=handover
            )
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        from t1core.model import triton_kernels

        keys = num_key_heads * self.key_head_dim
        q, k, v = qkv.split([keys, keys, qkv.shape[-1] - 2 * keys], dim=-1)
        q, k = (triton_kernels.l2norm(x.unflatten(-1, (num_key_heads, self.key_head_dim))) for x in (q, k))
        v = v.unflatten(-1, (-1, self.value_head_dim))
        state = None
        if handover is not None:
            alpha, state = _Arrival.apply(alpha, handover, len(rows.lengths), v.shape[1])
        out, state = chunk_gated_delta_rule(
            *(x.unsqueeze(0) for x in (q, k, v, alpha, beta)),
            scale=self.key_head_dim**-0.5,
            initial_state=state,
            output_final_state=handover is not None,
            use_gate_in_kernel=True,
            use_beta_sigmoid_in_kernel=True,
            A_log=decay.float(),
            dt_bias=bias.float(),
            cu_seqlens=_edges(rows),
            chunk_indices=_chunks(rows),
        )
        if handover is not None:
            out = _Departure.apply(out, state, handover)
        return out.squeeze(0)

    def _gate(self, out: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        from t1core.model import triton_kernels

        norm = self.out_norm
        shift = float(norm.shift)
        return triton_kernels.rms_norm(
            out, norm.weight, shift=shift, eps=norm.eps, gate=gate.unflatten(-1, out.shape[1:])
        )


class _Arrival(torch.autograd.Function):
    """The state in which the first row starts, fp32 [rows, value heads, key_dim, value_dim], zero for the others; and
    its gradient on the way back. `along` only passes through, so that autograd comes by."""

    @staticmethod
    def forward(
        ctx: Any, along: torch.Tensor, handover: Handover, num_rows: int, num_heads: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.handover = handover
        *_, key_dim, value_dim = handover.shape
        states = torch.zeros(num_rows, num_heads, key_dim, value_dim, device=along.device)
        arrived = handover.arrive(_no_map)
        if arrived is not None:
            states[0] = arrived.reshape(num_heads, key_dim, value_dim)
        return along.view_as(along), states

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, of_states: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        ctx.handover.depart_back(lambda: of_states[0].reshape(ctx.handover.shape))
        ctx.handover.settle()
        return grad, None, None, None


class _Departure(torch.autograd.Function):
    """Hands on the state in which the last row ends, and takes its gradient on the way back."""

    @staticmethod
    def forward(ctx: Any, out: torch.Tensor, states: torch.Tensor, handover: Handover) -> torch.Tensor:
        ctx.handover, ctx.size = handover, states.shape
        handover.depart(lambda: states[-1].reshape(handover.shape))
        handover.settle()
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        of_states = torch.zeros(ctx.size, device=grad.device)
        arrived = ctx.handover.arrive_back(_no_map)
        if arrived is not None:
            of_states[-1] = arrived.reshape(ctx.size[1:])
        return grad, of_states, None


def _no_map() -> torch.Tensor:
    raise AssertionError("the fused delta rule gives no map of a slice: choose plain kernels for state_scan")


def _edges(rows: PackedRows) -> torch.Tensor:
    """cu_seqlens as one and the same int64 tensor for every layer: flash-linear-attention caches by identity."""
    return rows.once("edges", lambda: rows.cu_seqlens_q.long())


def _chunks(rows: PackedRows) -> torch.Tensor:
    """Row and number within it of each chunk, int64 [chunks, 2]."""

    def make() -> torch.Tensor:
        counts = -(-torch.tensor(rows.lengths) // kernels.FUSED_CHUNK)
        row = torch.repeat_interleave(torch.arange(len(counts)), counts)
        first = F.pad(counts.cumsum(0), (1, 0))[row]
        return torch.stack([row, torch.arange(len(row)) - first], 1).to(rows.cu_seqlens_q.device)

    return rows.once("fused chunks", make)
