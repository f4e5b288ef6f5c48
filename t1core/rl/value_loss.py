"""PPO's clipped value loss, anchored at the values before the update (T1 eq. 18; baselines' PPO2).

V_clip = V_old + clip(V - V_old, -eps, eps)
l = max((V - R)^2, (V_clip - R)^2)
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ValueLoss:
    """per_token float32 [T] with gradient, 0 where masked; is_clipped bool [T], where the gradient is cut."""

    per_token: torch.Tensor
    is_clipped: torch.Tensor


def value_loss(
    values: torch.Tensor,
    *,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    mask: torch.Tensor,
    value_clip: float,
) -> ValueLoss:
    """All tensors [T]; there is no factor of one half. Masked positions are replaced before anything is
    computed."""
    kept = mask.bool()
    value = torch.where(kept, values, 0.0).float()
    anchor = torch.where(kept, old_values, 0.0).float()
    target = torch.where(kept, returns, 0.0).float()
    plain = (value - target) ** 2
    bounded = (anchor + (value - anchor).clamp(-value_clip, value_clip) - target) ** 2
    return ValueLoss(per_token=torch.maximum(plain, bounded), is_clipped=(bounded > plain) & kept)
