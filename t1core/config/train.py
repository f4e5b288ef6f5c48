"""The learner: optimisers, losses, packing, offload."""

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from t1core.config.off_policy import OffPolicySettings
from t1core.config.section import Settings


class OptimizerSettings(Settings):
    lr: float = Field(gt=0)
    """Learning rate, the highest of the schedule. T1's is constant."""
    lr_decay_style: Literal["constant", "linear", "cosine"] = "constant"
    """How the rate falls from `lr` to `min_lr`, if at all."""
    lr_warmup_steps: int = Field(0, ge=0)
    """Updates over which the rate rises from nothing to `lr`."""
    lr_decay_steps: int = Field(0, ge=0)
    """Update at which a falling rate reaches `min_lr`; critic-only steps are no updates of the actor, and each of
    `critic_steps` is one of the critic."""
    min_lr: float = Field(0.0, ge=0)
    """Where a falling rate ends."""
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    """Adam's first decay rate."""
    adam_beta2: float = Field(0.98, ge=0, lt=1)
    """Adam's second decay rate."""
    weight_decay: float = Field(0.1, ge=0)
    """Decoupled weight decay."""
    clip_grad: float = Field(1.0, gt=0)
    """Global gradient-norm clip."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.min_lr > self.lr:
            raise ValueError(f"min_lr={self.min_lr} is above lr={self.lr}: a falling rate cannot end there")
        if self.lr_decay_style == "constant":
            if self.lr_decay_steps or self.min_lr:
                raise ValueError(
                    f"lr_decay_steps={self.lr_decay_steps} and min_lr={self.min_lr} have no effect on a constant rate: "
                    "set lr_decay_style to linear or cosine, or leave them out"
                )
        elif self.lr_decay_steps <= self.lr_warmup_steps:
            raise ValueError(
                f"lr_decay_style={self.lr_decay_style} needs lr_decay_steps above lr_warmup_steps="
                f"{self.lr_warmup_steps}, not {self.lr_decay_steps}: give the update at which the rate reaches min_lr"
            )
        return self


class TrainSettings(Settings):
    actor: OptimizerSettings = OptimizerSettings(lr=1.0e-6)
    """T1's absolute value."""
    critic: OptimizerSettings = OptimizerSettings(lr=1.5e-5)
    """T1's absolute value: 15 times the actor's."""
    advantage: Literal["gae", "grpo"] = "gae"
    """gae: from the critic (PPO). grpo: reward less the mean of the task's samples, over their deviation; no critic is
    built, and what is said of values, returns and the critic below is not used."""
    grpo_std_normalization: bool = True
    """Under grpo, divide by the standard deviation of the task's samples."""
    load: str = ""
    """Checkpoint to go on from (`checkpoints/step_*` of a run): networks, optimiser states and behaviour snapshots; the
    first rollout is sampled by its weights. Steps and tasks of this campaign begin anew. Empty: none."""
    offload: bool = False
    """Actor and critic take turns on the GPU: the one that does not compute lies in host memory. Refused on a CPU."""
    eps_clip: float = Field(0.2, gt=0)
    """Policy clip, lower side, and upper unless `eps_clip_high` is set."""
    eps_clip_high: float | None = Field(None, gt=0)
    """Policy clip, upper side."""
    dual_clip: float | None = Field(None, gt=1)
    """Bounds the loss of a token with a negative advantage at this many times the advantage; none: unbounded (T1)."""
    kl_loss_coef: float = Field(0.0, ge=0)
    """Weight of the KL divergence from the starting policy in the actor's loss. T1: 0. Refused with routing replay,
    unless `regularize_under_replay` is set."""
    moe_aux_loss_coeff: float = Field(0.0, ge=0)
    """Weight of the actor's load-balancing loss. T1: 0. Refused with routing replay, unless `regularize_under_replay`
    is set."""
    regularize_under_replay: bool = False
    """For experiments alone: let `kl_loss_coef` and `moe_aux_loss_coeff` act beside routing replay, where they pull the
    actor towards a routing that is not the recorded one."""
    value_clip: float = Field(0.2, gt=0)
    """Value clip around the values before the update. The first of `critic_steps` updates starts at these values, so
    with `critic_steps` 1 it has no effect, and another value than T1's is refused."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount a trainable token."""
    lambd: float = Field(1.0, ge=0, le=1)
    """GAE lambda of the actor's advantages, and of the critic's returns unless `critic_lambd` is set."""
    critic_lambd: float | None = Field(None, ge=0, le=1)
    """GAE lambda of the critic's returns, where it differs from the actor's (VC-PPO: 1.0 beside 0.95)."""
    lambd_alpha: float | None = Field(None, gt=0)
    """Length-adaptive lambda (VAPO: 0.05): the actor's is 1 - 1 / (lambd_alpha * loss tokens of the row), at least 0,
    and `lambd` is the critic's alone. None: off."""
    normalize_advantages: bool = False
    """Whiten advantages over the batch's loss tokens. Off in T1."""
    chunk_reward: Literal["each", "once"] = "each"
    """A trial whose history did not stay a prefix of itself is several rows (chunks). each: every chunk is paid the
    trial's reward on its last response token (T1). once: the chunks form one chain, paid on its last token; at gamma
    and lambda 1 the two are the same."""
    loss_aggregation: Literal["row_mean", "trial_mean", "token_mean"] = "row_mean"
    """row_mean: masked mean of each row, summed and divided by the batch's rows (T1); a chunk weighs as much as a whole
    trial. trial_mean: the same over a trial's chunks together, so that a chunk weighs its share of the trial's tokens.
    token_mean: over tokens."""
    off_policy: OffPolicySettings = OffPolicySettings()
    """Corrections for data that another policy sampled."""
    critic_head: Literal["scalar", "hl_gauss"] = "scalar"
    """scalar: one number, squared error. hl_gauss: a histogram over `value_bins`, cross-entropy against the return
    spread by a Gaussian; the value is its expectation."""
    value_bins: int = Field(62, ge=2)
    """Bins of the hl_gauss head; 62 from -0.1 to 3.0 are one test wide."""
    value_min: float = -0.1
    """Lower end of the bins."""
    value_max: float = 3.0
    """Upper end of the bins."""
    actor_frozen: tuple[str, ...] = ()
    """Parts of the actor that never learn: regular expressions searched in Hugging Face names, such as
    `^model.embed_tokens`."""
    critic_frozen: tuple[str, ...] = ()
    """The same for the critic."""
    num_critic_only_steps: int = Field(2, ge=0)
    """First steps in which only the critic learns, to re-calibrate it to this policy."""
    critic_steps: int = Field(1, ge=1)
    """Critic updates a batch."""
    actor_steps: int = Field(1, ge=1)
    """Actor updates a batch, all against the behaviour snapshot's log-probs. T1: 1."""
    max_tokens_per_gpu: int = Field(8192, ge=256)
    """Tokens a micro-batch holds at most; a single longer row still gets a micro-batch of its own."""
    use_rollout_routing_replay: bool = True
    """R3: the trainer's forwards use the experts the engine chose."""
    measure_free_routing: bool = True
    """Also score the batch with free routing, so that the log-prob gap without replay is a number."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Weights in training; gradients accumulate in fp32 either way."""
    kernels: Literal["auto", "fused", "plain"] = "auto"
    """fused: flash-linear-attention's delta rule, flash attention and fused norms, for bf16 weights on a GPU; refused
    where they cannot run. plain: torch operations, anywhere. auto: fused where they can run. The run's log says which,
    and why."""
    tensor_parallel: int = Field(1, ge=1)
    """Tensor parallel size."""
    pipeline_parallel: int = Field(1, ge=1)
    """Pipeline parallel size."""
    context_parallel: int = Field(1, ge=1)
    """Context parallel size."""
    gdn_cp: Literal["state", "state_scan", "heads", "gather"] = "state"
    """How GatedDeltaNet layers run over context-parallel ranks. state: the recurrent state is handed from slice to
    slice, which gives one rank's bits. state_scan: slices are scanned at once and their maps composed. heads: heads are
    exchanged for positions (Megatron's way), for at most as many ranks as key heads. gather: each rank scans whole
    rows."""
    expert_parallel: int = Field(1, ge=1)
    """Expert parallel size."""
    data_parallel: int = Field(1, ge=1)
    """Data parallel size."""
    recompute: bool = False
    """Keep each layer's input alone in the forward pass and run the layer again in the backward: less memory, a third
    more arithmetic."""
    group_timeout_s: float = Field(3600.0, gt=0)
    """Deadline of a collective among all ranks. T1: 60 minutes, since gloo's own 30 look like a crash on long steps."""
    parallel_group_timeout_s: float = Field(600.0, gt=0)
    """The same in the groups of one kind of parallelism. T1: 30 minutes, and 120 with context parallelism."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.measure_free_routing and not self.use_rollout_routing_replay:
            raise ValueError(
                "measure_free_routing=true measures what replay is compared with, and use_rollout_routing_replay=false "
                "turns replay off: set measure_free_routing=false too"
            )
        if self.advantage == "gae" and not self.grpo_std_normalization:
            raise ValueError("grpo_std_normalization=false has no effect with advantage=gae: leave it out")
        if self.advantage == "grpo":
            self._check_without_critic()
        pulls = {name: getattr(self, name) for name in ("kl_loss_coef", "moe_aux_loss_coeff")}
        for name, weight in pulls.items():
            if weight and self.use_rollout_routing_replay and not self.regularize_under_replay:
                raise ValueError(
                    f"{name}={weight} beside use_rollout_routing_replay=true would pull the actor towards "
                    "a routing that is not the recorded one: set it to 0, turn the replay off, or, for an experiment "
                    "on just that, set regularize_under_replay=true"
                )
        if self.regularize_under_replay and not (self.use_rollout_routing_replay and any(pulls.values())):
            raise ValueError(
                "regularize_under_replay=true has no effect without use_rollout_routing_replay=true and one of "
                "kl_loss_coef and moe_aux_loss_coeff: leave it out, or set these"
            )
        if self.context_parallel == 1 and self.gdn_cp != "state":
            raise ValueError(
                f"gdn_cp={self.gdn_cp!r} has no effect with context_parallel=1: leave it out, or raise context_parallel"
            )
        for pattern in (*self.actor_frozen, *self.critic_frozen):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"actor_frozen, critic_frozen: {pattern!r} is no regular expression: {error}"
                ) from None
        if self.value_min >= self.value_max:
            raise ValueError(f"value_min={self.value_min} must be below value_max={self.value_max}")
        bins = {
            name: type(self).model_fields[name].default for name in ("value_bins", "value_min", "value_max")
        }
        if self.critic_head == "scalar" and any(getattr(self, name) != bins[name] for name in bins):
            raise ValueError(
                "value_bins, value_min and value_max describe the bins of critic_head='hl_gauss' and have no effect on "
                "a scalar head: set the head, or leave them out"
            )
        self._check_unread()
        if self.dual_clip and self.off_policy.policy_loss not in ("ppo", "gspo"):
            raise ValueError(
                f"dual_clip={self.dual_clip} has no effect with off_policy.policy_loss="
                f"{self.off_policy.policy_loss!r}, which masks and does not clip: leave it out"
            )
        if self.off_policy.ratio_denominator == "current" and (
            self.actor_steps == 1 or self.off_policy.importance == "none"
        ):
            raise ValueError(
                "off_policy.ratio_denominator='current' takes the ratio against the actor itself: at the first update "
                "it is identically one, so nothing is clipped and the version between sampling and training goes "
                "uncorrected. Use 'snapshot' (T1), or make it decoupled PPO with train.actor_steps above 1 and "
                "off_policy.importance other than none"
            )
        return self

    def _check_unread(self) -> None:
        loss = self.off_policy.policy_loss
        is_lambd_unread = self.lambd_alpha is not None and self.critic_lambd is not None
        for name, is_unread, why in (
            (
                "value_clip",
                self.critic_steps == 1,
                "critic_steps=1: the only update starts at the old values",
            ),
            ("lambd", is_lambd_unread, "both lambd_alpha and critic_lambd, which take its place"),
            ("eps_clip", loss != "ppo", f"off_policy.policy_loss={loss}, which has bounds of its own"),
            ("eps_clip_high", loss != "ppo", f"off_policy.policy_loss={loss}, which has bounds of its own"),
        ):
            default = type(self).model_fields[name].default
            if is_unread and getattr(self, name) != default:
                raise ValueError(
                    f"{name}={getattr(self, name)} has no effect with {why}; leave it at {default}"
                )

    def _check_without_critic(self) -> None:
        for name in (
            *("value_clip", "gamma", "lambd", "critic_lambd", "lambd_alpha", "normalize_advantages"),
            *("chunk_reward", "critic_head", "critic_frozen", "critic_steps"),
        ):
            if getattr(self, name) != (default := type(self).model_fields[name].default):
                raise ValueError(
                    f"{name}={getattr(self, name)} has no effect with advantage=grpo, which has no values: leave it "
                    f"at {default}"
                )
        if self.num_critic_only_steps:
            raise ValueError(
                f"num_critic_only_steps={self.num_critic_only_steps} with advantage=grpo, which has no critic: set "
                "num_critic_only_steps=0"
            )
        if self.offload:
            raise ValueError(
                "offload=true lets actor and critic take turns, and advantage=grpo has no critic: set offload=false"
            )

    @property
    def num_ranks(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel * self.data_parallel
