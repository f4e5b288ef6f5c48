"""The actor's last layer: log-probabilities of given tokens, block of tokens by block.

The layer itself only hands the hidden states on. `score` multiplies a block of them by the vocabulary's weights, and
its backward pass multiplies the block once more, so that what is in memory grows with a block's tokens x vocabulary and
not with a row's. The gradient of the weights is summed over blocks in fp32. Where all tokens are one block nothing is
run twice, and every number is what the logits as a whole give.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)
from torch import nn

from t1core.model.scoring_block import tokens_at_once


class LmHead(ColumnParallelLinear):
    """The vocabulary's weights, under Megatron's names, and a forward pass that leaves multiplying to `score`.

    `is_fused`: logits are scored in one kernel, where no vocabulary is split over ranks.
    """

    def __init__(self, config: Any, *, vocab_size: int, is_fused: bool) -> None:
        super().__init__(
            config.hidden_size, vocab_size, config=config, init_method=config.init_method, bias=False
        )
        self.is_fused = is_fused

    def forward(
        self, x: torch.Tensor, weight: Any = None, runtime_gather_output: Any = None
    ) -> tuple[torch.Tensor, None]:
        """[T / tp or T, 1, hidden] to [T, 1, hidden], whose gradient is summed over tensor-parallel ranks."""
        if self.sequence_parallel:
            return gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=True), None
        return copy_to_tensor_model_parallel_region(x), None

    def project(self, hidden: torch.Tensor) -> torch.Tensor:
        """This rank's logits [T, vocab / tp] of hidden states [T, hidden]."""
        return F.linear(hidden, self.weight)


def score(
    hidden: torch.Tensor, targets: torch.Tensor, *, model: nn.Module, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probability of each target, entropy of its distribution), fp32 [T]; the entropy carries no gradient.

    hidden: [T, hidden], what the last stage of the actor `model` ends in. targets: int64 [T].
    """
    layer = model.output_layer
    block = tokens_at_once(len(layer.weight))
    if len(hidden) <= block:
        return _score_block(layer, hidden, targets, temperature)
    return _ScoreByBlock.apply(hidden, layer.weight, layer, targets, temperature, block)


class _ScoreByBlock(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        layer: LmHead,
        targets: torch.Tensor,
        temperature: float,
        block: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(hidden, weight, targets)
        ctx.layer, ctx.temperature, ctx.block = layer, temperature, block
        blocks = zip(hidden.split(block), targets.split(block), strict=True)
        parts = [_score_block(layer, rows, picked, temperature) for rows, picked in blocks]
        logprobs, entropy = (torch.cat(part) for part in zip(*parts, strict=True))
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, targets = ctx.saved_tensors
        of_hidden = torch.empty_like(hidden)
        of_weight = torch.zeros_like(weight, dtype=torch.float32) if weight.requires_grad else None
        blocks = [tensor.split(ctx.block) for tensor in (hidden, targets, grad, of_hidden)]
        for rows, picked, above, found in zip(*blocks, strict=True):
            with torch.enable_grad():
                rows = rows.detach().requires_grad_()
                logprobs, _ = _score_block(ctx.layer, rows, picked, ctx.temperature)
            wanted = [rows] if of_weight is None else [rows, weight]
            first, *second = torch.autograd.grad(logprobs, wanted, above)
            found.copy_(first)
            if of_weight is not None:
                of_weight += second[0]
            del first, second, logprobs  # before the next block
        summed = None if of_weight is None else of_weight.to(weight.dtype)
        return of_hidden, summed, None, None, None, None


def _score_block(
    layer: LmHead, hidden: torch.Tensor, targets: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = layer.project(hidden)
    across_ranks = parallel_state.get_tensor_model_parallel_world_size() > 1
    if layer.is_fused and not across_ranks:
        from t1core.model import triton_kernels

        return triton_kernels.score(logits, targets, temperature=temperature)
    scaled = logits.float()
    if temperature != 1.0:
        scaled = scaled / temperature
    if across_ranks:
        return _score_across_ranks(scaled, targets)
    logprobs = torch.log_softmax(scaled, dim=-1)
    with torch.no_grad():
        entropy = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(-1, targets.unsqueeze(-1)).squeeze(-1), entropy


def _score_across_ranks(scaled: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    group = parallel_state.get_tensor_model_parallel_group()
    width = scaled.shape[-1]
    own = targets - width * dist.get_rank(group)
    here = (own >= 0) & (own < width)
    with torch.no_grad():
        peak = scaled.amax(-1)
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=group)
    shifted = scaled - peak.unsqueeze(-1)
    picked = shifted.gather(-1, own.clamp(0, width - 1).unsqueeze(-1)).squeeze(-1) * here
    weights = shifted.exp()
    sums = _SumOverRanks.apply(torch.stack([weights.sum(-1), picked]), group)
    log_total = sums[0].log()
    with torch.no_grad():
        expected = (weights * shifted).sum(-1)
        dist.all_reduce(expected, group=group)
        entropy = log_total - expected / sums[0]
    return sums[1] - log_total, entropy


class _SumOverRanks(torch.autograd.Function):
    """All-reduce whose result every rank uses alike, so that each rank's gradient is already whole."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None
