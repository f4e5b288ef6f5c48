"""Forward passes over packed rows: log-probabilities of given tokens, and values."""

from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import nn

from t1core.model.packed_rows import PackedRows


def packed(cu_seqlens: torch.Tensor) -> PackedRows:
    """Describe rows laid end to end. cu_seqlens int32 [rows + 1], starting at 0, strictly increasing.

    Under context parallelism these are the whole rows; tokens are then given as `packed_rows.zigzag` cuts
    them.
    """
    cu_seqlens = cu_seqlens.to(torch.int32)
    lengths = cu_seqlens.diff()
    if len(lengths) == 0 or int(cu_seqlens[0]) != 0 or int(lengths.min()) <= 0:
        raise ValueError(
            "cu_seqlens must start at 0 and increase: a packed row without rows, or an empty row"
        )
    longest = int(lengths.max())
    return PackedRows(
        qkv_format="thd",
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_kv=cu_seqlens,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )


def logits(
    model: nn.Module, tokens: torch.Tensor, position_ids: torch.Tensor, packed: PackedRows
) -> torch.Tensor:
    """The model's output for packed tokens [T]: [T, vocab / tp] logits, or a critic's [T, outputs].

    On a pipeline stage that is not the last, the hidden states that go on to the next.
    """
    out = model(tokens.view(1, -1), position_ids.view(1, -1), None, packed_seq_params=packed)
    return out.squeeze(0) if _is_last_stage() else out


def token_logprobs(
    model: nn.Module,
    tokens: torch.Tensor,
    position_ids: torch.Tensor,
    targets: torch.Tensor,
    packed: PackedRows,
    *,
    temperature: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each target and entropy of its distribution, both fp32 [T]; the entropy carries no
    gradient.

    tokens, position_ids, targets: int64 [T]; `targets[j]` is the token that position j predicts.
    """
    return score(logits(model, tokens, position_ids, packed), targets, temperature=temperature)


def token_values(
    model: nn.Module, tokens: torch.Tensor, position_ids: torch.Tensor, packed: PackedRows
) -> torch.Tensor:
    """A critic's value at each position, fp32 [T]."""
    return logits(model, tokens, position_ids, packed).squeeze(-1).float()


def score(
    vocab_logits: torch.Tensor, targets: torch.Tensor, *, temperature: float = 1.0, fused: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probability of each target, entropy) in fp32 [T] from this rank's logits [T, vocab / tp] and
    targets [T]. `fused`: in one kernel, where no vocabulary is split over ranks.
    """
    if fused and parallel_state.get_tensor_model_parallel_world_size() == 1:
        from t1core.model import triton_kernels

        return triton_kernels.score(vocab_logits, targets, temperature=temperature)
    scaled = vocab_logits.float()
    if temperature != 1.0:
        scaled = scaled / temperature
    if parallel_state.get_tensor_model_parallel_world_size() > 1:
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


def _is_last_stage() -> bool:
    return parallel_state.is_pipeline_last_stage()
