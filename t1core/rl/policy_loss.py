"""PPO's clipped surrogate, a token at a time (Schulman et al. 2017, eq. 7; dual clip: Ye et al. 2020, eq. 5).

rho = exp(logp - logp_behaviour)
l = max(-rho * A, -clip(rho, 1 - eps_low, 1 + eps_high) * A)
dual clip, where A < 0:  l = min(l, -c * A)
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class PolicyLoss:
    """per_token float32 [T] with gradient; is_clipped bool [T], where the gradient is cut; ratio float32 [T]
    without gradient. Masked positions hold 0, False and 1."""

    per_token: torch.Tensor
    is_clipped: torch.Tensor
    ratio: torch.Tensor


def policy_loss(
    logprobs: torch.Tensor,
    *,
    behaviour_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    eps_clip: float,
    eps_clip_high: float | None = None,
    dual_clip: float | None = None,
) -> PolicyLoss:
    """Per-token surrogate to be minimised.

    All tensors [T]. Masked positions are replaced before anything is computed from them, so NaN, infinities
    and large numbers there reach neither the loss nor the gradient. `dual_clip` is c > 1 above, None for
    none.
    """
    if dual_clip is not None and dual_clip <= 1.0:
        raise ValueError(
            f"dual_clip={dual_clip}: it bounds the loss at negative advantages and must exceed 1"
        )
    kept = mask.bool()
    logp = torch.where(kept, logprobs, 0.0).float()
    behaviour = torch.where(kept, behaviour_logprobs, 0.0).float()
    advantage = torch.where(kept, advantages, 0.0).float()
    ratio = (logp - behaviour).exp()
    high = eps_clip if eps_clip_high is None else eps_clip_high
    plain = -ratio * advantage
    bounded = -ratio.clamp(1.0 - eps_clip, 1.0 + high) * advantage
    loss = torch.maximum(plain, bounded)
    is_clipped = bounded > plain
    if dual_clip is not None:
        cap = -dual_clip * advantage
        over = (advantage < 0) & (loss > cap)
        loss = torch.where(over, cap, loss)
        is_clipped = is_clipped | over
    return PolicyLoss(per_token=loss, is_clipped=is_clipped & kept, ratio=ratio.detach())
