"""Values as histograms: cross-entropy against Gaussian-smoothed returns (HL-Gauss, Farebrother et al. 2403.03950).

    p_i(y) = [Phi((z_{i+1} - y) / s) - Phi((z_i - y) / s)] / [Phi((z_m - y) / s) - Phi((z_0 - y) / s)],   s = 0.75 w
    l = -sum_i p_i(R) log softmax(x)_i        V = sum_i softmax(x)_i c_i

z_0..z_m are the edges of m bins of width w, c_i their centres, x the head's outputs. Returns outside the bins count as
their nearer end. PPO's value clip becomes a clip on the expectation: where the clipped squared error of the scalar
loss would be the larger one, the token has no gradient.
"""

import math
from dataclasses import dataclass

import torch

from t1core.rl.value_loss import ValueLoss, value_loss

SIGMA_TO_WIDTH = 0.75
_LEAST_SHARE = 1e-4


@dataclass(frozen=True)
class ValueBins:
    """`num` bins of equal width from `low` to `high`; 62 from -0.1 to 3.0 are one test of r = P / 20 wide."""

    num: int = 62
    low: float = -0.1
    high: float = 3.0

    def __post_init__(self) -> None:
        if self.num < 2 or not self.low < self.high:
            raise ValueError(
                f"value_bins={self.num} from {self.low} to {self.high}: give two bins or more, and value_min below "
                "value_max"
            )

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.num

    def edges(self, device: torch.device | None = None) -> torch.Tensor:
        """float64 [num + 1]."""
        return torch.linspace(self.low, self.high, self.num + 1, dtype=torch.float64, device=device)

    def centres(self, device: torch.device | None = None) -> torch.Tensor:
        """float64 [num]."""
        edges = self.edges(device)
        return (edges[1:] + edges[:-1]) / 2


def smoothed(returns: torch.Tensor, *, bins: ValueBins) -> torch.Tensor:
    """The target distribution of each return: [T] to float32 [T, num], rows adding up to 1."""
    y = returns.double().clamp(bins.low, bins.high).unsqueeze(-1)
    scaled = (bins.edges(returns.device) - y) / (SIGMA_TO_WIDTH * bins.width * math.sqrt(2.0))
    cumulative = torch.special.erf(scaled)
    mass = cumulative[..., 1:] - cumulative[..., :-1]
    return (mass / mass.sum(-1, keepdim=True)).float()


def expectation(logits: torch.Tensor, *, bins: ValueBins) -> torch.Tensor:
    """The value of each histogram: [..., num] to float32 [...]."""
    return (torch.softmax(logits.double(), -1) * bins.centres(logits.device)).sum(-1).float()


def return_histogram_bias(returns: torch.Tensor, *, weights: torch.Tensor, bins: ValueBins) -> torch.Tensor:
    """The bias with which a head of zero weights answers the weighted histogram of returns: float32 [num].

    Its value is then the mean return, so explained variance starts near 0 and not far below. returns, weights [T];
    a bin without returns keeps a ten-thousandth of the mass, so that it can be learnt. Positions of weight 0 are not
    read.
    """
    kept = weights > 0
    weight = weights[kept].double()
    share = (smoothed(returns[kept], bins=bins).double() * weight.unsqueeze(-1)).sum(0) / weight.sum()
    share = (1 - _LEAST_SHARE) * share + _LEAST_SHARE / bins.num
    return share.log().float()


def hl_gauss_loss(
    logits: torch.Tensor,
    *,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    mask: torch.Tensor,
    value_clip: float,
    bins: ValueBins,
) -> ValueLoss:
    """logits [T, num], the others [T]. Masked positions are replaced before anything is computed from them."""
    kept = mask.bool()
    clean = torch.where(kept.unsqueeze(-1), logits, 0.0).float()
    target = torch.where(kept, returns, 0.0)
    with torch.no_grad():
        scalar = value_loss(
            expectation(clean, bins=bins),
            old_values=old_values,
            returns=target,
            mask=mask,
            value_clip=value_clip,
        )
    entropy = -(smoothed(target, bins=bins) * torch.log_softmax(clean, -1)).sum(-1)
    free = torch.where(scalar.is_clipped, entropy.detach(), entropy)
    return ValueLoss(per_token=torch.where(kept, free, 0.0), is_clipped=scalar.is_clipped)
