"""Megatron's GatedDeltaNet layer over torch operations and packed rows.

Weights, their sharding and checkpoints are Megatron's. Under context parallelism heads are exchanged for
positions by all-to-all, so each rank scans whole rows of its heads.
"""

from typing import Any

import megatron.core.ssm.gated_delta_net.common as common
import torch
import torch.nn.functional as F
from megatron.core.ssm.gated_delta_net import GatedDeltaNet

from t1core.model.causal_conv import causal_conv1d
from t1core.model.delta_rule import chunk_gated_delta_rule
from t1core.model.packed_rows import PackedRows

# Megatron refuses to build the layer without flash-linear-attention, whose kernels are not used here.
common.HAVE_FLA = True


class TorchGatedDeltaNet(GatedDeltaNet):
    """GatedDeltaNet whose convolution, recurrence and norms are torch code; it takes packed rows only."""

    def _setup_variant_attrs(self) -> None:
        super()._setup_variant_attrs()
        self.gated_delta_rule = chunk_gated_delta_rule

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
        mixed, back = self._to_heads(mixed, rows)
        qkv, gate, beta, alpha = mixed.squeeze(1).split(self.feat_dim_split, dim=-1)
        conv, decay, bias = self._own_head_parameters()
        g = -decay.float().exp() * F.softplus(alpha.float() + bias.float())
        out = self.gated_delta_rule(
            causal_conv1d(qkv, conv, rows),
            g,
            beta.sigmoid(),
            rows=rows,
            num_key_heads=self.num_k_heads_local_tp // self.cp_size,
            key_dim=self.key_head_dim,
        )
        gate = gate.unflatten(-1, (-1, self.value_head_dim))
        out = (self.out_norm(out) * F.silu(gate.float())).type_as(out)
        return self.out_proj(self._to_positions(out.flatten(1).unsqueeze(1), back))

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

    def _to_heads(self, x: torch.Tensor, rows: PackedRows) -> tuple[torch.Tensor, torch.Tensor | None]:
        """[T / cp, 1, channels] of zig-zag positions to [T, 1, channels / cp] in order, and the way back."""
        if self.cp_size == 1:
            return x, None
        group = self.pg_collection.cp
        order = common._build_head_perm_for_split_sections(
            self.in_proj_split_sections, self.cp_size, x.device
        )
        x = common.tensor_a2a_cp2hp(
            x.index_select(-1, order),
            seq_dim=0,
            head_dim=-1,
            cp_group=group,
            undo_attention_load_balancing=False,
        )
        arrived = rows.zigzag(self.cp_size).flatten()
        return x.index_select(0, torch.argsort(arrived)), arrived

    def _to_positions(self, x: torch.Tensor, back: torch.Tensor | None) -> torch.Tensor:
        if back is None:
            return x
        return common.tensor_a2a_hp2cp(
            x.index_select(0, back),
            seq_dim=0,
            head_dim=-1,
            cp_group=self.pg_collection.cp,
            redo_attention_load_balancing=False,
        )
