"""The train-inference gap: trainer log-probs against the engine's, for sampled tokens (T1 eq. 24).

    d_j = logp_trainer(x_j) - logp_rollout(x_j)
    k3_j = exp(d_j) - 1 - d_j    (Schulman's estimator of KL(rollout || trainer), since x_j ~ rollout)

All means are over trainable tokens of the whole batch. Dividing by rows or micro-batches instead of tokens is
the well-known way to report a gap a thousand times too large.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class LogprobGap:
    """Nats, except `prob_abs_mean` (probability) and `nonfinite` (tokens left out of every mean). NaN without
    tokens."""

    mean: float
    abs_mean: float
    abs_max: float
    k3: float
    prob_abs_mean: float
    nonfinite: int


def logprob_gap(
    trainer_logprobs: torch.Tensor, *, rollout_logprobs: torch.Tensor, mask: torch.Tensor
) -> LogprobGap:
    """All tensors [T], any device."""
    kept = mask.bool()
    trainer, rollout = trainer_logprobs[kept].double(), rollout_logprobs[kept].double()
    finite = trainer.isfinite() & rollout.isfinite()
    nonfinite = int((~finite).sum())
    trainer, rollout = trainer[finite], rollout[finite]
    if not len(trainer):
        nan = float("nan")
        return LogprobGap(mean=nan, abs_mean=nan, abs_max=nan, k3=nan, prob_abs_mean=nan, nonfinite=nonfinite)
    gap = trainer - rollout
    return LogprobGap(
        mean=float(gap.mean()),
        abs_mean=float(gap.abs().mean()),
        abs_max=float(gap.abs().max()),
        k3=float((gap.expm1() - gap).mean()),
        prob_abs_mean=float((trainer.exp() - rollout.exp()).abs().mean()),
        nonfinite=nonfinite,
    )
