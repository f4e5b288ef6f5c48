"""KL divergence from a reference policy as a loss a token (Schulman's k3, unbiased, never negative).

l = exp(logp_ref - logp) - 1 - (logp_ref - logp)
"""

import torch


def kl_loss(logprobs: torch.Tensor, *, reference_logprobs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """float32 [T] with gradient, 0 where masked, whatever stands there. All tensors [T]."""
    kept = mask.bool()
    difference = torch.where(kept, reference_logprobs, 0.0).float() - torch.where(kept, logprobs, 0.0).float()
    return difference.expm1() - difference
