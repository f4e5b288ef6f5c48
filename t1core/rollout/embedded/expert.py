"""Experts for small batches: every expert over every token in two batched products, weighted by the router.

With a few tokens and a few experts the model's own loop over experts costs more in calls than in arithmetic.
The products are the same; only the sum over a token's experts runs in another order.
"""

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

NAME = "t1core_small_batch"
_MAX_CELLS = 1024  # tokens x experts up to which computing all of them pays


def small_batch_experts(
    module: torch.nn.Module, hidden: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """Mixture over experts. hidden: [tokens, h]; top_k_index, top_k_weights: [tokens, k]; returns [tokens,
    h].
    """
    num_tokens = len(hidden)
    if num_tokens * module.num_experts > _MAX_CELLS:
        return grouped_mm_experts_forward(module, hidden, top_k_index, top_k_weights)
    weights = torch.zeros(num_tokens, module.num_experts, dtype=hidden.dtype).scatter_(
        1, top_k_index, top_k_weights
    )
    gate_up = torch.matmul(hidden, module.gate_up_proj.transpose(1, 2))
    inner = module._apply_gate(gate_up) * weights.t()[..., None]
    return torch.matmul(inner, module.down_proj.transpose(1, 2)).sum(dim=0)


ALL_EXPERTS_FUNCTIONS.register(NAME, small_batch_experts)
