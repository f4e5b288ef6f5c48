"""The actor's surrogate loss over a batch, whatever the switches: clip, rows, masks, trust region, weights, KL.

What a token's loss needs from its whole row or batch (GSPO's row ratio, SAT's quantile, a row's importance) is computed
once from the global streams before the update, so the loss is the same under every layout and packing.
"""

from dataclasses import dataclass, field

import torch

from t1core.config.off_policy import OffPolicySettings
from t1core.rl import (
    PolicyLoss,
    TrustRegion,
    adaptive_trust,
    banded,
    keeps_ipo,
    keeps_kl,
    keeps_tv,
    kl_loss,
    masked_importance,
    masked_policy_loss,
    policy_loss,
    row_log_ratio,
    token_ratio,
    truncated,
)
from t1core.train.streams import BatchStreams, DeviceMicroBatch


@dataclass(frozen=True)
class SurrogateSettings:
    """eps_clip_high None: eps_clip. dual_clip None: none. With kl_loss_coef 0 no reference policy is read."""

    eps_clip: float = 0.2
    eps_clip_high: float | None = None
    dual_clip: float | None = None
    kl_loss_coef: float = 0.0
    off_policy: OffPolicySettings = field(default_factory=OffPolicySettings)

    @property
    def needs_live_logprobs(self) -> bool:
        """Whether the loss reads the actor's log-probs over whole rows or the batch, which takes a pass before."""
        return self.off_policy.policy_loss == "gspo" or self.off_policy.trust_region != "fixed"

    def clip(self) -> tuple[float, float]:
        """Lower and upper side of the clip in use."""
        if self.off_policy.policy_loss == "gspo":
            return self.off_policy.gspo_eps_clip, self.off_policy.gspo_eps_clip_high
        return self.eps_clip, self.eps_clip if self.eps_clip_high is None else self.eps_clip_high


@dataclass(frozen=True)
class Surrogate:
    """The loss of one update. Streams [T] of the global batch: the ratio's denominator, advantages, weights (the
    aggregation's times the importance's), the reference policy's log-probs or None, and, where the objective needs
    them, row log ratios and a trust region."""

    settings: SurrogateSettings
    mask: torch.Tensor
    denominator: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor
    reference: torch.Tensor | None
    row_log_ratio: torch.Tensor | None
    trust: TrustRegion | None

    def __call__(self, logprobs: torch.Tensor, micro: DeviceMicroBatch) -> tuple[torch.Tensor, PolicyLoss]:
        """logprobs [P] with gradient; (summed loss of the micro-batch, the surrogate's terms)."""
        mask = micro.take(self.mask)
        terms = self._terms(logprobs, micro, mask)
        per_token = terms.per_token
        if self.reference is not None:
            per_token = per_token + self.settings.kl_loss_coef * kl_loss(
                logprobs, reference_logprobs=micro.take(self.reference), mask=mask
            )
        return (per_token * micro.take(self.weights)).sum(), terms

    def _terms(self, logprobs: torch.Tensor, micro: DeviceMicroBatch, mask: torch.Tensor) -> PolicyLoss:
        chosen = self.settings.off_policy
        shared = dict(
            behaviour_logprobs=micro.take(self.denominator),
            advantages=micro.take(self.advantages),
            mask=mask,
        )
        if chosen.policy_loss in ("ppo", "gspo"):
            low, high = self.settings.clip()
            return policy_loss(
                logprobs,
                **shared,
                eps_clip=low if self.trust is None else micro.take(self.trust.eps_low),
                eps_clip_high=high if self.trust is None else micro.take(self.trust.eps_high),
                dual_clip=self.settings.dual_clip,
                row_log_ratio=None if self.row_log_ratio is None else micro.take(self.row_log_ratio),
            )
        keep = divergence_keep(
            logprobs.detach(), micro.take(self.denominator), micro.take(self.advantages), chosen
        )[chosen.policy_loss]
        return masked_policy_loss(logprobs, **shared, keep=keep, ratio_cap=chosen.ratio_cap)


def surrogate(
    settings: SurrogateSettings,
    *,
    streams: BatchStreams,
    denominator: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    live: torch.Tensor | None,
    reference: torch.Tensor | None,
) -> Surrogate:
    """Put the loss of one update together. `live`: the actor's log-probs before it, if `needs_live_logprobs`."""
    row, trust = None, None
    if settings.needs_live_logprobs:
        assert live is not None
        log_ratio = live - denominator
        if settings.off_policy.policy_loss == "gspo":
            log_ratio = row = row_log_ratio(
                log_ratio, mask=streams.mask, rows=streams.rows, num_rows=streams.num_rows
            ).float()
        trust = trust_region(log_ratio, settings=settings, streams=streams)
    return Surrogate(
        settings=settings,
        mask=streams.mask,
        denominator=denominator,
        advantages=advantages,
        weights=weights,
        reference=reference,
        row_log_ratio=row,
        trust=trust,
    )


def trust_region(
    log_ratio: torch.Tensor, *, settings: SurrogateSettings, streams: BatchStreams
) -> TrustRegion | None:
    """SAT's clip around drifts [T]; None where the clip stays as set."""
    off_policy = settings.off_policy
    if off_policy.trust_region == "fixed":
        return None
    low, high = settings.clip()
    return adaptive_trust(
        log_ratio,
        mask=streams.mask,
        eps_low=low,
        eps_high=high,
        quantile=off_policy.sat_quantile,
        curve="square" if off_policy.trust_region == "sat_square" else "continuous",
    )


def divergence_keep(
    logprobs: torch.Tensor, denominator: torch.Tensor, advantages: torch.Tensor, chosen: OffPolicySettings
) -> dict[str, torch.Tensor]:
    """Which tokens each divergence mask keeps, by the name of the policy loss: bool, as long as the arguments."""
    p, mu = logprobs.exp(), denominator.exp()
    return {
        "dppo_tv": keeps_tv(
            p, mu=mu, advantages=advantages, low=chosen.dppo_tv_low, high=chosen.dppo_tv_high
        ),
        "dppo_kl": keeps_kl(p, mu=mu, advantages=advantages, largest=chosen.dppo_kl_max),
        "ipo": keeps_ipo(p, mu=mu, largest=chosen.ipo_max),
    }


def importance_weights(
    trainer_logprobs: torch.Tensor, *, streams: BatchStreams, chosen: OffPolicySettings
) -> dict[str, torch.Tensor]:
    """Every importance weight by its name, float64 [T], from the denominator's log-probs over the engine's."""
    ratio = token_ratio(trainer_logprobs, rollout_logprobs=streams.rollout_logprobs, mask=streams.mask)
    weights = {
        "decoupled": ratio,
        "tis": truncated(ratio, low=chosen.tis_clip_low, high=chosen.tis_clip),
        "icepop": banded(ratio, low=chosen.icepop_low, high=chosen.icepop_high),
    }
    for level in ("token", "sequence", "geometric"):
        weights[f"mis_{level}"] = masked_importance(
            trainer_logprobs,
            rollout_logprobs=streams.rollout_logprobs,
            mask=streams.mask,
            rows=streams.rows,
            num_rows=streams.num_rows,
            level=level,
            low=chosen.mis_low,
            high=chosen.mis_high,
            veto=chosen.mis_veto,
            normalize=chosen.mis_normalize,
        )
    return weights
