"""Settings of a trainer. Only the trainer sees this object; the functions below it get plain values."""

from dataclasses import dataclass, field
from typing import Literal

import torch

from t1core.config.off_policy import OffPolicySettings
from t1core.model.kernels import Wanted
from t1core.model.layout import Layout
from t1core.model.shape import ModelShape
from t1core.model.weights import matching
from t1core.rl.aggregate import Aggregation
from t1core.rl.hl_gauss import ValueBins
from t1core.train.adam import Adam
from t1core.train.checkpoint import Terms
from t1core.train.critic_update import ChunkReward, Credit, CriticObjective
from t1core.train.directories import (
    holds_value_head,
    refuse_other_head,
    refuse_shared_directory,
    resolved,
)
from t1core.train.learning_rate import LearningRate
from t1core.train.surrogate import SurrogateSettings


@dataclass(frozen=True)
class TrainSettings:
    """Everything a trainer needs to know, fixed for its life.

    actor_path: Hugging Face directory of the policy. critic_path: directory of a warmed critic, weights only;
    None starts the critic from the actor's backbone with a zero value head. Paths may not name one directory.
    advantage: from the critic (gae), or from the other samples of the task (grpo), which builds no critic;
    grpo_std_normalization divides by the group's deviation. offload: actor and critic take turns on the device.
    max_tokens_per_gpu counts tokens of a micro-batch on one rank; a longer row still gets a micro-batch of
    its own. measure_free_routing also scores each batch with free routing, which costs one more forward.
    kernels: which compute the networks (t1core.model.kernels).
    recompute keeps each layer's input alone and runs its forward again in the backward pass. max_version_lag: how far
    behind the newest version a token's sampler may be; the snapshots of so many versions are kept beside the newest.
    """

    actor_path: str
    critic_path: str | None
    shape: ModelShape
    layout: Layout = field(default_factory=Layout)
    precision: Literal["fp32", "bf16"] = "fp32"
    kernels: Wanted = "auto"
    advantage: Literal["gae", "grpo"] = "gae"
    grpo_std_normalization: bool = True
    actor: Adam = field(default_factory=lambda: Adam(LearningRate(1e-6)))
    critic: Adam = field(default_factory=lambda: Adam(LearningRate(1.5e-5)))
    eps_clip: float = 0.2
    eps_clip_high: float | None = None
    dual_clip: float | None = None
    kl_loss_coef: float = 0.0
    moe_aux_loss_coeff: float = 0.0
    regularize_under_replay: bool = False
    off_policy: OffPolicySettings = field(default_factory=OffPolicySettings)
    value_clip: float = 0.2
    value_bins: ValueBins | None = None
    gamma: float = 1.0
    lambd: float = 1.0
    critic_lambd: float | None = None
    lambd_alpha: float | None = None
    normalize_advantages: bool = False
    chunk_reward: ChunkReward = "each"
    actor_frozen: tuple[str, ...] = ()
    critic_frozen: tuple[str, ...] = ()
    loss_aggregation: Aggregation = "row_mean"
    actor_steps: int = 1
    critic_steps: int = 1
    max_tokens_per_gpu: int = 8192
    use_rollout_routing_replay: bool = True
    measure_free_routing: bool = False
    recompute: bool = False
    offload: bool = False
    group_timeout_s: float = 3600.0
    parallel_group_timeout_s: float = 600.0
    seed: int = 0
    max_version_lag: int = 1

    def __post_init__(self) -> None:
        resolved(self.actor_path)
        refuse_shared_directory(actor=self.actor_path, critic=self.critic_path, field="critic_path")
        if holds_value_head(self.actor_path):
            raise ValueError(f"actor_path={self.actor_path!r} holds a critic (it has a value head)")
        if self.critic_path is not None and not holds_value_head(self.critic_path):
            raise ValueError(
                f"critic_path={self.critic_path!r} holds no value head; give a directory that "
                "save_weights(role='critic') wrote, or None to start the critic from the actor's backbone"
            )
        for name in ("eps_clip", "value_clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        for name in ("actor_steps", "critic_steps", "max_tokens_per_gpu", "max_version_lag"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("gamma", "lambd", "critic_lambd"):
            if getattr(self, name) is not None and not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must lie between 0 and 1")
        if self.advantage not in ("gae", "grpo"):
            raise ValueError(f"advantage={self.advantage!r}: choose 'gae' or 'grpo'")
        if self.advantage == "grpo" and (self.critic_path is not None or self.offload):
            raise ValueError(
                "advantage='grpo' builds no critic: leave critic_path out, and offload, which lets actor and critic "
                "take turns, off"
            )
        if self.precision not in ("fp32", "bf16"):
            raise ValueError(f"precision={self.precision!r}: choose 'fp32' or 'bf16'")
        if self.measure_free_routing and not self.use_rollout_routing_replay:
            raise ValueError(
                "measure_free_routing has no effect without use_rollout_routing_replay, since routing is "
                "free already: turn it off"
            )
        for name in ("kl_loss_coef", "moe_aux_loss_coeff"):
            is_allowed = self.regularize_under_replay or not self.use_rollout_routing_replay
            if getattr(self, name) and not is_allowed:
                raise ValueError(
                    f"{name}={getattr(self, name)} would pull the actor towards a routing that is not the recorded "
                    "one: set it to 0, or turn use_rollout_routing_replay off"
                )
        matching(self.actor_frozen, shape=self.shape, role="actor")
        matching(self.critic_frozen, shape=self.shape, role="critic")
        if self.critic_path is not None:
            refuse_other_head(self.critic_path, bins=self.value_bins, field="critic_path")

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights in training."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    @property
    def surrogate(self) -> SurrogateSettings:
        """What the actor's loss is made of."""
        return SurrogateSettings(
            eps_clip=self.eps_clip,
            eps_clip_high=self.eps_clip_high,
            dual_clip=self.dual_clip,
            kl_loss_coef=self.kl_loss_coef,
            off_policy=self.off_policy,
        )

    @property
    def credit(self) -> Credit:
        """How rewards become returns and advantages."""
        return Credit(
            gamma=self.gamma,
            lambd=self.lambd,
            critic_lambd=self.lambd if self.critic_lambd is None else self.critic_lambd,
            lambd_alpha=self.lambd_alpha,
            chunk_reward=self.chunk_reward,
            normalize_advantages=self.normalize_advantages,
        )

    @property
    def critic_objective(self) -> CriticObjective:
        """What a batch does to the critic."""
        return CriticObjective(
            credit=self.credit,
            value_clip=self.value_clip,
            num_steps=self.critic_steps,
            bins=self.value_bins,
            is_cold=self.critic_path is None,
        )

    @property
    def checkpoint_terms(self) -> Terms:
        """What a checkpoint and these settings must agree on."""
        return Terms(
            shape=self.shape,
            precision=self.precision,
            frozen={"actor": self.actor_frozen, "critic": self.critic_frozen},
            value_bins=self.value_bins,
        )
