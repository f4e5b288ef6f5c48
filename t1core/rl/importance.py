"""Importance weights for the gap between the trainer's scoring of a policy and the engine's: w = p_trainer / p_rollout.

    decoupled   w                                                      (AReaL 2505.24298)
    tis         min(max(w, low), C)                                    truncated importance sampling
    icepop      w where low <= w <= high, else 0
    mis         L where low <= L <= high, else 0, L by level:          masked importance sampling
                  token     w
                  sequence  the product of w over the row
                  geometric the geometric mean of w over the row
                a row with a token of w below `veto` is left out whole; optionally divided by the batch's mean

Weights carry no gradient. A token whose log-probs are not finite gets weight 0.
"""

from typing import Literal

import torch

from t1core.rl.sequence_ratio import row_log_ratio

Level = Literal["token", "sequence", "geometric"]
# A product over thousands of tokens leaves what doubles hold; e^50 is far outside any band.
_LARGEST_LOG = 50.0


def token_ratio(
    trainer_logprobs: torch.Tensor, *, rollout_logprobs: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """w of each trainable token, float64 [T]; 0 where masked or not finite."""
    log_ratio, usable = _log_ratio(trainer_logprobs, rollout_logprobs, mask)
    return log_ratio.exp() * usable


def truncated(ratio: torch.Tensor, *, low: float, high: float) -> torch.Tensor:
    """TIS of `token_ratio`'s [T]; what is 0 there stays 0."""
    return ratio.clamp(low, high) * (ratio > 0)


def banded(ratio: torch.Tensor, *, low: float, high: float) -> torch.Tensor:
    """IcePop of `token_ratio`'s [T]."""
    return ratio * ((ratio >= low) & (ratio <= high))


def masked_importance(
    trainer_logprobs: torch.Tensor,
    *,
    rollout_logprobs: torch.Tensor,
    mask: torch.Tensor,
    rows: torch.Tensor,
    num_rows: int,
    level: Level,
    low: float,
    high: float,
    veto: float = 0.0,
    normalize: bool = False,
) -> torch.Tensor:
    """MIS weights, float64 [T], of the global batch's streams. ValueError for an unknown level."""
    log_ratio, usable = _log_ratio(trainer_logprobs, rollout_logprobs, mask)
    if level == "token":
        level_log = log_ratio
    elif level in ("sequence", "geometric"):
        level_log = row_log_ratio(
            log_ratio,
            mask=usable,
            rows=rows,
            num_rows=num_rows,
            reduce="sum" if level == "sequence" else "mean",
        )
    else:
        raise ValueError(f"level={level!r}: choose token, sequence or geometric")
    weight = level_log.clamp(-_LARGEST_LOG, _LARGEST_LOG).exp() * usable
    weight = banded(weight, low=low, high=high)
    if veto:
        weight = weight * ~vetoed(log_ratio.exp(), mask=usable, rows=rows, num_rows=num_rows, veto=veto)
    if normalize:
        total, count = weight.sum(), mask.bool().sum()
        weight = weight * (count / total) if float(total) > 0 else weight
    return weight


def vetoed(
    ratio: torch.Tensor, *, mask: torch.Tensor, rows: torch.Tensor, num_rows: int, veto: float
) -> torch.Tensor:
    """Tokens of rows that hold a trainable token of w below `veto`: bool [T]."""
    bad = torch.zeros(num_rows, dtype=torch.bool, device=mask.device)
    bad[rows[mask.bool() & (ratio < veto)]] = True
    return bad[rows]


def effective_sample_frac(weights: torch.Tensor, *, mask: torch.Tensor) -> float:
    """(sum w)^2 / (n sum w^2) over trainable tokens: 1 for equal weights, 1/n if one token has all; NaN without."""
    w = weights[mask.bool()].double()
    square = float((w * w).sum())
    return float(w.sum()) ** 2 / (len(w) * square) if square else float("nan")


def _log_ratio(
    trainer_logprobs: torch.Tensor, rollout_logprobs: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    usable = mask.bool() & trainer_logprobs.isfinite() & rollout_logprobs.isfinite()
    trainer = torch.where(usable, trainer_logprobs, 0.0).detach().double()
    return trainer - torch.where(usable, rollout_logprobs, 0.0).double(), usable
