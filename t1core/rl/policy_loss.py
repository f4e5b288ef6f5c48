"""PPO's clipped surrogate, a token at a time (Schulman et al. 2017, eq. 7; dual clip: Ye et al. 2020, eq. 5).

rho = exp(logp - logp_behaviour)
l = max(-rho * A, -clip(rho, 1 - eps_low, 1 + eps_high) * A)
dual clip, where A < 0:  l = min(l, -c * A)

GSPO (Zheng et al. 2507.18071) is the same with rho a row's geometric mean s. It is given here as a number a token,
without gradient, in the token form of their appendix: rho = s * exp(logp - sg(logp)), whose gradient is GSPO's.
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
    eps_clip: float | torch.Tensor,
    eps_clip_high: float | torch.Tensor | None = None,
    dual_clip: float | None = None,
    row_log_ratio: torch.Tensor | None = None,
) -> PolicyLoss:
    """Per-token surrogate to be minimised.

    All tensors [T]. Masked positions are replaced before anything is computed from them, so NaN, infinities
    and large numbers there reach neither the loss nor the gradient. The clip's sides may be [T] too.
    `dual_clip` is c > 1 above, None for none. `row_log_ratio`, if given, is log s [T] and takes the place of the
    token's own log ratio.
    """
    if dual_clip is not None and dual_clip <= 1.0:
        raise ValueError(
            f"dual_clip={dual_clip}: it bounds the loss at negative advantages and must exceed 1"
        )
    kept = mask.bool()
    logp = torch.where(kept, logprobs, 0.0).float()
    behaviour = torch.where(kept, behaviour_logprobs, 0.0).float()
    advantage = torch.where(kept, advantages, 0.0).float()
    log_ratio = logp - behaviour
    if row_log_ratio is not None:
        log_ratio = torch.where(kept, row_log_ratio, 0.0).float() + (logp - logp.detach())
    ratio = log_ratio.exp()
    high = eps_clip if eps_clip_high is None else eps_clip_high
    floor = torch.as_tensor(1.0 - eps_clip, dtype=torch.float32, device=ratio.device)
    ceiling = torch.as_tensor(1.0 + high, dtype=torch.float32, device=ratio.device)
    plain = -ratio * advantage
    bounded = -ratio.clamp(floor, ceiling) * advantage
    loss = torch.maximum(plain, bounded)
    is_clipped = bounded > plain
    if dual_clip is not None:
        cap = -dual_clip * advantage
        over = (advantage < 0) & (loss > cap)
        loss = torch.where(over, cap, loss)
        is_clipped = is_clipped | over
    return PolicyLoss(per_token=loss, is_clipped=is_clipped & kept, ratio=ratio.detach())
