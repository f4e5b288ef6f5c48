"""Megatron's GatedDeltaNet layer over torch operations and packed rows.

Weights, their sharding and checkpoints are Megatron's. Under context parallelism a rank holds zig-zag shares of rows,
and the recurrence runs over them in one of four ways:

- state: positions are exchanged so that each rank scans a contiguous slice, with a halo for the convolution, and the
  recurrent state is handed from slice to slice in fp32. Any number of ranks; what one rank computes, bit for bit.
- state_scan: the same slices, scanned at once; states are composed from every slice's affine map.
- heads: Megatron's own way. Heads are exchanged for positions, so that each rank scans whole rows of its heads; heads
  must divide by tp * cp.
- gather: every rank gathers whole rows, scans them all, and keeps its own positions.
"""

from typing import Any

import megatron.core.ssm.gated_delta_net.common as common
import torch
import torch.nn.functional as F
from megatron.core.ssm.gated_delta_net import GatedDeltaNet
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region

from t1core.model import delta_rule
from t1core.model.causal_conv import causal_conv1d
from t1core.model.context_slices import ContextSlice, cut, to_slice, to_zigzag, with_halo
from t1core.model.layout import GdnContextParallel
from t1core.model.packed_rows import PackedRows
from t1core.model.state_handover import Handover, Scan, Sequential

# Megatron refuses to build the layer without flash-linear-attention, which only the fused layer needs.
common.HAVE_FLA = True
_HANDOVERS = {"state": Sequential, "state_scan": Scan}


class TorchGatedDeltaNet(GatedDeltaNet):
    """GatedDeltaNet whose convolution, recurrence and norms are torch code; it takes packed rows only."""

    def __init__(self, *args: Any, gdn_cp: GdnContextParallel, **kwargs: Any) -> None:
        self.gdn_cp = gdn_cp
        super().__init__(*args, **kwargs)

    @property
    def chunk(self) -> int:
        """Tokens of a chunk of the recurrence, on whose grid slices are cut."""
        return delta_rule.CHUNK

    def _setup_variant_attrs(self) -> None:
        if self.gdn_cp != "heads":
            self.cp_size = 1  # every rank scans all heads of its tensor-parallel share
        super()._setup_variant_attrs()
        self.gated_delta_rule = delta_rule.chunk_gated_delta_rule

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        inference_context: Any = None,
        packed_seq_params: PackedRows | None = None,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """hidden_states [T_local, 1, hidden] in and out; the second result is Megatron's (absent) bias."""
        assert inference_context is None, "this layer does not decode"
        rows = packed_seq_params
        assert isinstance(rows, PackedRows), "pass packed rows (t1core.model.forward.packed)"
        mixed, _bias = self.in_proj(hidden_states)
        if self.pg_collection.cp.size() == 1:
            out = self._scan(mixed.squeeze(1), rows)
        elif self.gdn_cp == "heads":
            out = self._scan_own_heads(mixed, rows)
        elif self.gdn_cp == "gather":
            out = self._scan_everything(mixed.squeeze(1), rows)
        else:
            out = self._scan_own_slice(mixed.squeeze(1), rows)
        return self.out_proj(out.unsqueeze(1))

    def _scan(self, mixed: torch.Tensor, rows: PackedRows, own: ContextSlice | None = None) -> torch.Tensor:
        """Convolution, recurrence, norm and gate: [T, projections of the heads scanned here] to [T, value heads *
        value_dim]. `own`: the slice that rows are; None where they are whole.
        """
        qkv, gate, beta, alpha = mixed.split(self.feat_dim_split, dim=-1)
        conv, decay, bias = self._own_head_parameters()
        num_key_heads = self.num_k_heads_local_tp // self.cp_size
        if own is None:
            handover, mixed_along = None, self._convolve(qkv, conv, rows)
        else:
            group, halo = self.pg_collection.cp, conv.shape[1] - 1
            wider, with_borrowed = with_halo(qkv, own, size=halo, group=group)
            mixed_along = self._convolve(wider, conv, with_borrowed)[len(wider) - len(qkv) :]
            repeat = alpha.shape[-1] // num_key_heads
            state = num_key_heads, repeat, self.key_head_dim, self.value_head_dim
            handover = _HANDOVERS[self.gdn_cp](own, group, shape=state)
        out = self._recur(
            mixed_along,
            alpha,
            beta,
            decay,
            bias,
            rows=rows,
            num_key_heads=num_key_heads,
            handover=handover,
        )
        return self._gate(out, gate).flatten(1)

    def _convolve(self, x: torch.Tensor, weight: torch.Tensor, rows: PackedRows) -> torch.Tensor:
        """Causal convolution and SiLU. x [T, channels], weight [channels, taps]."""
        return causal_conv1d(x, weight, rows)

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
        """The gated delta rule. qkv [T, channels]; alpha, beta [T, value heads] as projected; decay (A_log), bias
        [value heads]. Returns [T, value heads, value_dim]."""
        g = -decay.float().exp() * F.softplus(alpha.float() + bias.float())
        return self.gated_delta_rule(
            qkv,
            g,
            beta.sigmoid(),
            rows=rows,
            num_key_heads=num_key_heads,
            key_dim=self.key_head_dim,
            handover=handover,
        )

    def _gate(self, out: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Norm of each head, times SiLU of its gate. out [T, value heads, value_dim], gate [T, channels]."""
        gate = gate.view(out.shape)
        return (self.out_norm(out) * F.silu(gate.float())).type_as(out)

    def _scan_own_slice(self, mixed: torch.Tensor, rows: PackedRows) -> torch.Tensor:
        group, chunk = self.pg_collection.cp, self.chunk
        own = rows.once(
            ("slice", group.size(), chunk),
            lambda: cut(rows, cp=group.size(), rank=group.rank(), chunk=chunk),
        )
        return to_zigzag(self._scan(to_slice(mixed, own, group), own.rows, own), own, group)

    def _scan_everything(self, mixed: torch.Tensor, rows: PackedRows) -> torch.Tensor:
        group = self.pg_collection.cp
        held = rows.zigzag(group.size())
        whole = gather_from_sequence_parallel_region(mixed.contiguous(), group=group)
        out = self._scan(whole.index_select(0, torch.argsort(held.flatten())), rows)
        return out.index_select(0, held[group.rank()])

    def _scan_own_heads(self, mixed: torch.Tensor, rows: PackedRows) -> torch.Tensor:
        group = self.pg_collection.cp
        order = common._build_head_perm_for_split_sections(
            self.in_proj_split_sections, self.cp_size, mixed.device
        )
        whole = common.tensor_a2a_cp2hp(
            mixed.index_select(-1, order),
            seq_dim=0,
            head_dim=-1,
            cp_group=group,
            undo_attention_load_balancing=False,
        )
        arrived = rows.zigzag(self.cp_size).flatten()
        out = self._scan(whole.squeeze(1).index_select(0, torch.argsort(arrived)), rows)
        return common.tensor_a2a_hp2cp(
            out.index_select(0, arrived).unsqueeze(1),
            seq_dim=0,
            head_dim=-1,
            cp_group=group,
            redo_attention_load_balancing=False,
        ).squeeze(1)

    def _own_head_parameters(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(convolution [channels, taps], A_log, dt_bias) of the heads this context-parallel rank scans."""
        conv = self.conv1d.weight
        if self.cp_size == 1:
            return conv.squeeze(1), self.A_log, self.dt_bias
        group = self.pg_collection.cp
        sections = [self.qk_dim_local_tp, self.qk_dim_local_tp, self.v_dim_local_tp]
        conv = common.get_parameter_local_cp(conv, dim=0, cp_group=group, split_sections=sections)
        decay, bias = (
            common.get_parameter_local_cp(p, dim=0, cp_group=group) for p in (self.A_log, self.dt_bias)
        )
        return conv.squeeze(1), decay, bias
