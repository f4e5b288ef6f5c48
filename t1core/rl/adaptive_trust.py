"""SAT: a clip that shrinks where a token has already drifted (Staleness-Adaptive Trust region, 2607.18722).

    d_j = log ratio of token j, without gradient, against the engine's log-probs
    q   = quantile of |d| over the batch's trainable tokens
    c_j = 1 if |d_j| <= q or q = 0, else a Hill curve of exponent 2:
            continuous  q^2 / (q^2 + (|d_j| - q)^2)     1 at q, 1/2 at 2 q
            square      q^2 / (q^2 + d_j^2)             1/2 just beyond q
    interval [1 - eps_low * c_j if d_j < 0, 1 + eps_high * c_j if d_j > 0]; the other side stays as it was

Which of the two curves the paper means we could not read, so it is a choice. Ours takes q over the global batch where
the paper takes it over a micro-batch, so that the loss does not depend on how rows are packed. It only ever narrows the
interval, and never on the side towards which an update would bring the token back.
"""

from dataclasses import dataclass
from typing import Literal

import torch

Curve = Literal["continuous", "square"]


@dataclass(frozen=True)
class TrustRegion:
    """eps_low, eps_high float32 [T]; quantile in nats, NaN without a trainable token; contracted bool [T]."""

    eps_low: torch.Tensor
    eps_high: torch.Tensor
    quantile: float
    contracted: torch.Tensor


def adaptive_trust(
    log_ratio: torch.Tensor,
    *,
    mask: torch.Tensor,
    eps_low: float,
    eps_high: float,
    quantile: float,
    curve: Curve,
) -> TrustRegion:
    """log_ratio, mask [T] of the global batch. The quantile is the smallest |d| with that share at or below it."""
    kept = mask.bool()
    drift = torch.where(kept, log_ratio, 0.0).detach().double()
    size = drift.abs()
    chosen = size[kept]
    bound = float("nan")
    factor = torch.ones_like(size)
    if len(chosen):
        rank = min(len(chosen), max(1, -int(-quantile * len(chosen) // 1)))
        bound = float(chosen.kthvalue(rank).values)
        if bound > 0:
            excess = size - bound if curve == "continuous" else size
            factor = torch.where(size > bound, bound**2 / (bound**2 + excess**2), factor)
    return TrustRegion(
        eps_low=(eps_low * torch.where(drift < 0, factor, 1.0)).float(),
        eps_high=(eps_high * torch.where(drift > 0, factor, 1.0)).float(),
        quantile=bound,
        contracted=(factor < 1) & kept,
    )
