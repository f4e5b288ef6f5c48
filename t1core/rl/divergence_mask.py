"""Masks in place of a clip: tokens whose probability moved too far get no gradient (DPPO 2602.04879; prime-rl's IPO).

p = probability of the sampled token now, mu = under the denominator's policy.

    tv    keep where A > 0: p - mu <= high;  A <= 0: p - mu >= -low
    kl    D = mu log(mu / p) + (1 - mu) log((1 - mu) / (1 - p));  keep where D <= largest, or the push is inward:
          A > 0 and p < mu, or A <= 0 and p > mu
    ipo   keep where |p - mu| <= largest, whichever way the push goes
    l = -A * min(p / mu, cap) * log p where kept, the factor without gradient; 0 elsewhere
"""

import torch

from t1core.rl.policy_loss import PolicyLoss

_TINY = 1e-12


def keeps_tv(
    p: torch.Tensor, *, mu: torch.Tensor, advantages: torch.Tensor, low: float, high: float
) -> torch.Tensor:
    """bool [T]."""
    return torch.where(advantages > 0, p - mu <= high, p - mu >= -low)


def keeps_kl(p: torch.Tensor, *, mu: torch.Tensor, advantages: torch.Tensor, largest: float) -> torch.Tensor:
    """bool [T]."""
    inward = torch.where(advantages > 0, p < mu, p > mu)
    return inward | (binary_divergence(p, mu=mu) <= largest)


def keeps_ipo(p: torch.Tensor, *, mu: torch.Tensor, largest: float) -> torch.Tensor:
    """bool [T]."""
    return (p - mu).abs() <= largest


def binary_divergence(p: torch.Tensor, *, mu: torch.Tensor) -> torch.Tensor:
    """KL(Bernoulli(mu), Bernoulli(p)) in nats, float64 [T], finite also at 0 and 1."""
    p, mu = (x.double().clamp(_TINY, 1 - _TINY) for x in (p, mu))
    return mu * (mu / p).log() + (1 - mu) * ((1 - mu) / (1 - p)).log()


def masked_policy_loss(
    logprobs: torch.Tensor,
    *,
    behaviour_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    keep: torch.Tensor,
    ratio_cap: float,
) -> PolicyLoss:
    """The loss above. `keep` bool [T]; `is_clipped` marks trainable tokens that are masked. All tensors [T]."""
    kept = mask.bool()
    logp = torch.where(kept, logprobs, 0.0).float()
    behaviour = torch.where(kept, behaviour_logprobs, 0.0).float()
    advantage = torch.where(kept, advantages, 0.0).float()
    ratio = (logp - behaviour).detach().exp()
    loss = torch.where(kept & keep, -advantage * ratio.clamp(max=ratio_cap) * logp, 0.0)
    return PolicyLoss(per_token=loss, is_clipped=kept & ~keep, ratio=ratio)
