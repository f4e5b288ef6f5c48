"""What the actor does about data that another policy sampled: denominators, weights, masks, trust regions.

T1's preset is the default: the clipped ratio against the trainer's own scoring of the snapshot that sampled, nothing
weighted or masked. Whatever is chosen, the others are measured each step under `off_policy/`, from the thresholds here.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from t1core.config.section import Settings


class OffPolicySettings(Settings):
    ratio_denominator: Literal["snapshot", "current", "rollout"] = "snapshot"
    """Whose log-probs the policy's ratio is taken against. snapshot: the weights that sampled, scored by the trainer
    (T1). current: the actor before this batch's first update, the proximal policy of decoupled PPO. rollout: what the
    engine reported."""
    policy_loss: Literal["ppo", "gspo", "dppo_tv", "dppo_kl", "ipo"] = "ppo"
    """ppo: a clipped ratio a token. gspo: a clipped ratio a row, the geometric mean over its tokens. dppo_tv, dppo_kl,
    ipo: no clip, but tokens whose probability has moved too far are masked."""
    trust_region: Literal["fixed", "sat_continuous", "sat_square"] = "fixed"
    """fixed: the clip as set. Otherwise SAT: the side of the clip towards which a token has drifted shrinks with its
    drift d beyond the batch's quantile q. The exact form is not published where we could read it; the candidates
    are q^2 / (q^2 + (|d| - q)^2), which is continuous, and q^2 / (q^2 + d^2), which drops to 1/2 at q."""
    importance: Literal[
        "none", "decoupled", "tis", "mis_token", "mis_sequence", "mis_geometric", "icepop"
    ] = "none"
    """What the loss of a token is multiplied by, from w = denominator's probability over the engine's. decoupled: w
    itself. tis: w clamped. mis: the w of the token, the product over its row, or the geometric mean over its row, and 0
    outside the band. icepop: w, and 0 outside the band."""
    tis_clip: float = Field(2.0, gt=0)
    """TIS: largest weight."""
    tis_clip_low: float = Field(0.0, ge=0)
    """TIS: smallest weight."""
    mis_low: float = Field(0.5, ge=0)
    """MIS: lower end of the band, at whichever level is chosen."""
    mis_high: float = Field(2.0, gt=0)
    """MIS: upper end of the band."""
    mis_veto: float = Field(1e-4, ge=0)
    """MIS: a row with one token whose w is below this is left out whole; 0 for no veto."""
    mis_normalize: bool = False
    """MIS: divide the weights by their mean over the batch's loss tokens."""
    icepop_low: float = Field(0.5, ge=0)
    """IcePop: lower end of the band."""
    icepop_high: float = Field(5.0, gt=0)
    """IcePop: upper end of the band."""
    gspo_eps_clip: float = Field(3e-4, gt=0)
    """GSPO's clip, lower side."""
    gspo_eps_clip_high: float = Field(4e-4, gt=0)
    """GSPO's clip, upper side."""
    dppo_tv_low: float = Field(0.2, gt=0)
    """DPPO-TV: how far a token's probability may have fallen before a push further down is masked."""
    dppo_tv_high: float = Field(0.2, gt=0)
    """DPPO-TV: how far it may have risen before a push further up is masked."""
    dppo_kl_max: float = Field(0.05, gt=0)
    """DPPO-KL: binary divergence, in nats, beyond which a push outward is masked."""
    ipo_max: float = Field(0.3, gt=0)
    """ipo: change of probability beyond which a token is masked whichever way it is pushed."""
    ratio_cap: float = Field(20.0, gt=1)
    """DPPO and ipo: the largest ratio by which a token's gradient is multiplied."""
    sat_quantile: float = Field(0.9, gt=0, lt=1)
    """SAT: which quantile of the batch's |log ratio| is left alone. Ours is taken over the global batch, the paper's
    over a micro-batch: so the loss does not depend on how rows are packed."""

    @model_validator(mode="after")
    def check(self) -> Self:
        for low, high in (
            ("mis_low", "mis_high"),
            ("icepop_low", "icepop_high"),
            ("tis_clip_low", "tis_clip"),
        ):
            if getattr(self, low) >= getattr(self, high):
                raise ValueError(
                    f"{low}={getattr(self, low)} must be below {high}={getattr(self, high)}: the band is empty"
                )
        if self.ratio_denominator == "rollout" and self.importance != "none":
            raise ValueError(
                f"importance={self.importance!r} weighs by the denominator over the engine's probabilities, and with "
                "ratio_denominator='rollout' they are the same: set one of the two back"
            )
        for name, is_read, reader in (
            ("ratio_cap", self.policy_loss not in ("ppo", "gspo"), "policy_loss dppo_tv, dppo_kl and ipo"),
            ("mis_normalize", self.importance.startswith("mis_"), "importance mis_*"),
        ):
            if getattr(self, name) != (default := type(self).model_fields[name].default) and not is_read:
                raise ValueError(
                    f"{name}={getattr(self, name)} has no effect here, it belongs to {reader}: leave it at {default}"
                )
        if self.trust_region != "fixed" and self.policy_loss not in ("ppo", "gspo"):
            raise ValueError(
                f"trust_region={self.trust_region!r} shrinks a clip, and policy_loss={self.policy_loss!r} has none: "
                "choose ppo or gspo, or trust_region='fixed'"
            )
        if self.trust_region != "fixed" and self.ratio_denominator != "rollout":
            raise ValueError(
                f"trust_region={self.trust_region!r} measures drift from the engine's log-probs: set "
                "ratio_denominator='rollout', or trust_region='fixed'"
            )
        return self
