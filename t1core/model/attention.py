"""Core attention by torch's scaled_dot_product_attention: packed rows, grouped queries, context parallelism.

Under context parallelism keys and values are gathered and each rank attends from its own zig-zag positions.
"""

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.module import MegatronModule

from t1core.model.packed_rows import PackedRows


class PackedAttention(MegatronModule):
    """Causal attention within each packed row; stands where Megatron's DotProductAttention stands."""

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        softmax_scale: float | None = None,
        pg_collection: Any = None,
        **_: Any,
    ) -> None:
        super().__init__(config=config)
        self.cp_group = pg_collection.cp
        self.scale = softmax_scale or config.kv_channels**-0.5

    def sharded_state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        packed_seq_params: PackedRows | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """query [T_local, heads, d], key and value [T_local, groups, d]; returns [T_local, heads * d]."""
        rows = packed_seq_params
        assert isinstance(rows, PackedRows), "pass packed rows (t1core.model.forward.packed)"
        if self.cp_group.size() == 1:
            out = self._attend_rows(query, key, value, rows)
        else:
            out = self._attend_across_ranks(query, key, value, rows)
        return out.flatten(1)

    def _attend_rows(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: PackedRows
    ) -> torch.Tensor:
        """Each row for itself: [T, heads, d]."""
        split = (x.split(rows.lengths) for x in (query, key, value))
        return torch.cat([self._attend(q, k, v) for q, k, v in zip(*split, strict=True)])

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        grouped = q.shape[1] != k.shape[1]
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=self.scale, enable_gqa=grouped
        )
        return out.squeeze(0).transpose(0, 1)

    def _attend_across_ranks(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: PackedRows
    ) -> torch.Tensor:
        # torch.distributed.nn's all_gather mistakes group ranks for global ones in its backward on gloo
        # subgroups.
        k, v = (gather_from_sequence_parallel_region(x.contiguous(), group=self.cp_group) for x in (k, v))
        held = rows.zigzag(self.cp_group.size())
        mine, everyone = held[self.cp_group.rank()], held.flatten()
        before = everyone[None, :] <= mine[:, None]
        same_row = rows.row_of[everyone][None, :] == rows.row_of[mine][:, None]
        return self._attend(q, k, v, (before & same_row)[None, None])
