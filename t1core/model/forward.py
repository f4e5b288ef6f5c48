"""Forward passes over packed rows: log-probabilities of given tokens, and values."""

import torch
from megatron.core import parallel_state
from torch import nn

from t1core.model.packed_rows import PackedRows
from t1core.model.scoring import score


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


def outputs(
    model: nn.Module, tokens: torch.Tensor, position_ids: torch.Tensor, packed: PackedRows
) -> torch.Tensor:
    """What the model ends in for packed tokens [T]: an actor's [T, hidden], which `scoring.score` takes, or a critic's
    [T, outputs].

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
    return score(outputs(model, tokens, position_ids, packed), targets, model=model, temperature=temperature)


def token_values(
    model: nn.Module, tokens: torch.Tensor, position_ids: torch.Tensor, packed: PackedRows
) -> torch.Tensor:
    """A critic's value at each position, fp32 [T]."""
    return outputs(model, tokens, position_ids, packed).squeeze(-1).float()


def _is_last_stage() -> bool:
    return parallel_state.is_pipeline_last_stage()
