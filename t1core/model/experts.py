"""Routed experts: stacked weights and one grouped matrix product over all experts of a rank.

`LocalMoELayer` skips Megatron's dispatcher where no token leaves the rank: it sorts (token, choice) pairs by
expert, runs the experts, sorts back and adds, with gathers in both directions and no sparse [tokens, experts]
tensors.
"""

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.dist_checkpointing.mapping import ShardedTensor
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.tensor_parallel.random import get_expert_parallel_rng_tracker_name
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.transformer.moe.moe_utils import topk_routing_with_score_function
from torch import nn


class StackedExperts(MegatronModule):
    """SwiGLU experts of this rank. w1 [experts, 2 * inner, hidden] (gate, then up); w2 [experts, hidden,
    inner].
    """

    def __init__(self, num_local_experts: int, config: Any, pg_collection: Any = None, **_: Any) -> None:
        super().__init__(config=config)
        assert pg_collection.expt_tp.size() == 1, "expert tensor parallelism is not supported"
        self.ep_group, self.dp_group = pg_collection.ep, pg_collection.expt_dp
        inner, hidden = config.moe_ffn_hidden_size, config.hidden_size
        device = torch.cuda.current_device() if torch.cuda.is_available() else None

        def empty(*size: int) -> nn.Parameter:
            param = nn.Parameter(
                torch.empty(num_local_experts, *size, dtype=config.params_dtype, device=device)
            )
            # Always on the expert data-parallel path: with ep = 1 too, so that optimiser checkpoints keep
            # their keys whatever the layout, and because Megatron otherwise sums these gradients over the
            # wrong ranks when tp > 1.
            param.allreduce = False
            return param

        self.w1, self.w2 = empty(2 * inner, hidden), empty(hidden, inner)
        with get_cuda_rng_tracker().fork(get_expert_parallel_rng_tracker_name()):
            config.init_method(self.w1.data)
            config.output_layer_init_method(self.w2.data)

    def forward(
        self, x: torch.Tensor, tokens_per_expert: torch.Tensor, probs: torch.Tensor
    ) -> tuple[torch.Tensor, None]:
        """x [n, hidden] sorted by expert, probs [n] gate weights; the second result is Megatron's (absent)
        bias.
        """
        if x.shape[0] == 0:
            return x + 0 * (self.w1.sum() + self.w2.sum()).to(x.dtype), None
        ends = torch.as_tensor(tokens_per_expert).cumsum(0).to(device=x.device, dtype=torch.int32)
        inner = self._activate(F.grouped_mm(x, self.w1.transpose(1, 2), offs=ends), probs)
        return F.grouped_mm(inner, self.w2.transpose(1, 2), offs=ends), None

    def _activate(self, both: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
        """SwiGLU times the gate weights. both [n, 2 * inner], gate before up."""
        gate, up = both.chunk(2, dim=-1)
        return (F.silu(gate) * up * probs.unsqueeze(-1)).to(both.dtype)

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple = (), metadata: Any = None
    ) -> dict[str, ShardedTensor]:
        axis = len(sharded_offsets)
        split = (axis, self.ep_group.rank(), self.ep_group.size())
        return {
            prefix + name: ShardedTensor.from_rank_offsets(
                prefix + name,
                param,
                *sharded_offsets,
                split,
                replica_id=(0, 0, self.dp_group.rank()),
                prepend_axis_num=axis,
            )
            for name, param in (("w1", self.w1), ("w2", self.w2))
        }


class _Reorder(torch.autograd.Function):
    """Rows of x picked by `pick`; the gradient sums, for each row of x, the `repeat` picks listed in
    `places`.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, pick: torch.Tensor, places: torch.Tensor, repeat: int
    ) -> torch.Tensor:
        ctx.save_for_backward(places)
        ctx.repeat = repeat
        return x.index_select(0, pick)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (places,) = ctx.saved_tensors
        grad = grad.index_select(0, places)
        return (grad.unflatten(0, (-1, ctx.repeat)).sum(1) if ctx.repeat > 1 else grad), None, None, None


class LocalMoELayer(MoELayer):
    """MoELayer that keeps to itself when there is one rank to a token's experts, and is Megatron's own
    otherwise, and where its router has a load-balancing loss.
    """

    def forward(
        self,
        hidden_states: torch.Tensor,
        intermediate_tensors: Any = None,
        padding_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, None]:
        is_split = self.ep_group.size() > 1 or self.attn_tp_group.size() > 1
        if is_split or self.router.is_aux_loss_enabled():
            return super().forward(hidden_states, intermediate_tensors, padding_mask)
        shared = self.shared_experts_compute(hidden_states)
        x = hidden_states.flatten(0, 1)
        k = self.config.moe_router_topk
        probs, chosen = topk_routing_with_score_function(
            self.router.gating(x), k, router_replay=self.router.router_replay, dense_output=True
        )
        chosen = chosen.flatten()
        order = torch.argsort(chosen, stable=True)
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order), device=order.device)
        # bincount waits for a GPU, to learn the largest number.
        counts = torch.zeros(self.config.num_moe_experts, dtype=torch.int64, device=chosen.device)
        counts.scatter_add_(0, chosen, torch.ones_like(chosen))
        out, _ = self.experts(
            _Reorder.apply(x, order // k, places, k),
            counts,
            _Reorder.apply(probs.flatten(), order, places, 1),
        )
        out = _Reorder.apply(out, places, order, 1).unflatten(0, (-1, k)).sum(1)
        return out.view_as(hidden_states) + shared, None
