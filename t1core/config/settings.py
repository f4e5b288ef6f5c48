"""Every setting of a campaign, with its meaning. slime's names where the concept is the same."""

import math
import os
import re
from typing import Literal, Self

from pydantic import Field, model_validator

from t1core.config.off_policy import OffPolicySettings
from t1core.config.section import Settings


def _is_one_directory(first: str, second: str) -> bool:
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    return os.path.exists(first) and os.path.exists(second) and os.path.samefile(first, second)


class ModelSettings(Settings):
    actor_path: str = ""
    """Hugging Face directory of the starting policy. Empty: the warm-started nano model, made on first use."""
    critic_path: str = ""
    """Directory of a warmed critic (weights only). Empty: the critic made with the nano model. "cold": the actor's
    backbone with a zero value head."""
    hidden_size: int = Field(128, ge=32)
    """Width of the nano model; read only when `actor_path` is empty."""
    num_layers: int = Field(4, ge=4, multiple_of=4)
    """Layers of the nano model: three GatedDeltaNet layers to one gated-attention layer."""
    num_experts: int = Field(8, ge=2)
    """Routed experts a layer of the nano model."""
    num_experts_per_tok: int = Field(2, ge=1)
    """Experts chosen a token."""
    moe_intermediate_size: int = Field(64, ge=16)
    """Width of each expert and of the shared expert."""
    vocab_size: int = Field(768, ge=384)
    """Size of the byte-level BPE trained on the practice pool's demonstrations."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.actor_path and self.critic_path and _is_one_directory(self.actor_path, self.critic_path):
            raise ValueError(
                f"critic_path={self.critic_path!r} is actor_path={self.actor_path!r} by another spelling: one would "
                'overwrite the other; give the critic a directory of its own, or "cold"'
            )
        return self


class WarmStartSettings(Settings):
    """How the nano policy and its critic are made. Changing anything here makes new ones."""

    seed: int = 0
    """Seed of the weights and of the demonstrations."""
    supervised_steps: int = Field(420, ge=1)
    """Optimiser steps on demonstrations; stopped early on purpose, so that there is room to learn."""
    idle_steps: int = Field(25, ge=0)
    """Last steps, in which `idle_share` of the demonstrations claim completion having done nothing."""
    idle_share: float = Field(0.6, ge=0, lt=1)
    """Share of demonstrations in the last `idle_steps` that claim completion having done nothing. It leaves the
    policy a habit for PPO to unlearn: a model this small has no other fault that a few thousand trials can mend."""
    copying_steps: int = Field(140, ge=0)
    """First steps in which most rows are word lists to repeat: copying a name is the skill the tasks rest on, and a
    model this small finds it in dense lists long before it finds it in dialogues."""
    first_turn_steps: int = Field(240, ge=0)
    """Steps up to which most dialogues end with the first answer: short rows, each with commands to get right."""
    supervised_tokens: int = Field(4096, ge=512)
    """Tokens a supervised step."""
    supervised_lr: float = Field(2e-3, gt=0)
    """Peak learning rate of the supervised phase."""
    critic_warmup_steps: int = Field(24, ge=0)
    """Actor-critic steps on the easy tasks; of the result only the critic is kept."""
    critic_warmup_batch: int = Field(40, ge=1)
    """Trials a step of the critic's warm-up."""


class TaskSettings(Settings):
    pool: str = ""
    """Directory of Harbor tasks. Empty: the practice pool, generated on first use."""
    pool_seed: int = 0
    """Seed of the practice pool."""
    tasks_per_family: int = Field(40, ge=4)
    """Practice tasks generated a family."""
    max_level: int = Field(3, ge=1, le=3)
    """Hardest practice level trained on; held-out tasks always span all levels."""
    shuffle: bool = True
    """Reshuffle the training tasks every epoch from the campaign's seed. Off: disk order."""


class AgentSettings(Settings):
    prompt: Literal["compact", "full", "terminus2"] = "compact"
    """Wording: `compact` for the nano model, `full` explains the protocol to a general model, `terminus2` is Harbor's
    own, read from the installed `harbor` package."""
    protocol: Literal["json", "xml"] = "json"
    """Form of an answer, as Terminus-2 has it. The nano model speaks JSON."""
    max_turns: int = Field(8, ge=1)
    """Model calls a trial at most."""
    max_new_tokens: int = Field(160, ge=8)
    """Tokens a model call may sample."""
    context_tokens: int = Field(1536, ge=128)
    """Window: prompt plus completion of any call stays within it."""
    context_margin_tokens: int = Field(16, ge=0)
    """Kept free beside `max_new_tokens` when the budget is checked."""
    max_sampled_tokens: int = Field(0, ge=0)
    """Tokens a whole trial may sample, summaries included; 0: its turns alone bound them."""
    summary_tokens: int = Field(0, ge=0)
    """Tokens of a summary at most, sampled and trained like any turn, when the history has outgrown the window; 0:
    such a trial ends instead."""
    summarize_above_tokens: int = Field(0, ge=0)
    """Longest prompt before the history is summarised; 0: the longest for which a summary still fits."""
    agent_timeout_s: float = Field(60.0, gt=0)
    """Cap on the wall clock of one trial's agent loop. A task that asks for less (agent.timeout_sec) gets what it asks
    for; one that asks for more gets this, which is said at start and counted (agent/capped_time_frac)."""
    max_wait_s: float = Field(2.0, gt=0)
    """Cap on the wait for one command batch, whatever duration the model asks for."""
    output_limit_bytes: int = Field(2_000, ge=200)
    """An observation keeps this many bytes, half from each end. Terminus-2 uses 10,000."""


class SandboxSettings(Settings):
    memory_mb: int = Field(512, ge=64)
    """Memory a box may use."""
    storage_mb: int = Field(64, ge=1)
    """Disk a box may fill."""
    max_processes: int = Field(64, ge=8)
    """Processes and threads inside a box."""
    image_dir: str = ""
    """Root directory of an unpacked image: boxes and graders see its /usr in place of the host's. Empty: the host's."""
    create_rate_per_s: float = Field(40.0, gt=0)
    """Boxes opened a second at most, training and evaluation together. T1: 6."""


class VerifierSettings(Settings):
    memory_mb: int = Field(1024, ge=128)
    """Memory a grade may use, all its processes together; pytest with its plugins takes some 50 MB of it."""
    max_processes: int = Field(64, ge=1)
    """Processes and threads of one grade."""
    max_parallel: int = Field(0, ge=0)
    """Grades run at once on a host. 0: one a core, and 2 at least."""


class RewardSettings(Settings):
    kind: Literal["dense", "binary", "ratio"] = "dense"
    """dense: tests passed over `scale`. binary: all passed. ratio: T1's ratio variant."""
    scale: float = Field(20.0, gt=0)
    """S of r = P / S."""
    subtract_nop: bool = False
    """Do not count tests that pass on the untouched workspace. Off in T1's presets."""
    shaping: Literal["none", "bonus", "additive", "multiplicative"] = "none"
    """What a trial's turns do to the reward that is trained on; grades and metrics keep the plain one. T1's final runs:
    none; it tried all three, and the constants below are ours (`verifier/shaping.py` has the formulas)."""
    healthy_turns: int = Field(25, ge=1)
    """Turns that cost nothing."""
    bonus_tests: float = Field(0.5, gt=0, lt=1)
    """bonus: what the shortest of the solved trials gains, in tests."""
    penalty_tests: float = Field(0.8, gt=0, lt=1)
    """additive: what twice the healthy turns cost, in tests; below 1, so that one more test always pays."""
    discount_per_turn: float = Field(0.01, gt=0, lt=1)
    """multiplicative: share of the reward that each turn beyond the healthy ones takes."""
    discount_floor: float = Field(0.5, ge=0, le=1)
    """multiplicative: share of the reward that is left at least."""
    idle_penalty_tests: float = Field(0.5, ge=0, lt=1)
    """multiplicative: what twice the healthy turns without one passed test cost, in tests."""
    scale_by_batch_max: bool = False
    """Divide the rewards that are trained on by the largest of their batch. For experiments: a reward's worth then
    depends on its neighbours."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.shaping != "none" and self.kind != "dense":
            raise ValueError(
                f"shaping={self.shaping!r} is measured in tests, and kind={self.kind!r} does not count them: use "
                "kind='dense', or shaping='none'"
            )
        return self


class RolloutSettings(Settings):
    engine: Literal["embedded"] = "embedded"
    """Kind of inference engine."""
    engine_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of the engine's weights."""
    rollout_batch_size: int = Field(40, ge=1)
    """Trials a step trains on: the first this many to finish are kept."""
    over_sampling_batch_size: int = Field(44, ge=1)
    """Trials launched a step."""
    samples_per_task: int = Field(1, ge=1)
    """Trials of each task in a step (slime: n_samples_per_prompt). T1: 1. More make a group, which enters the batch
    whole or not at all; both batch sizes above count trials and are multiples of it."""
    min_accepted_frac: float = Field(0.5, gt=0, le=1)
    """A step with fewer usable trials than this share of the batch stops the campaign."""
    tail: Literal["cut", "wait"] = "cut"
    """What happens to launched trials beyond the batch: cancelled (T1), or awaited and dropped from the batch."""
    max_live_trials: int = Field(44, ge=1)
    """Trials alive at once on a host."""
    temperature: float = 1.0
    """Sampling temperature in training; anything but 1 is refused, since the trainer scores that distribution."""
    trial_deadline_s: float = Field(600.0, gt=0)
    """A whole trial, from its launch to its grade; past it the trial counts as failed. Must hold what is within it."""
    verifier_timeout_s: float = Field(300.0, gt=0)
    """Cap on a task's verifier.timeout_sec, which is said at start when a task asks for more."""
    max_retries: int = Field(1, ge=0)
    """Times a trial is launched again after a retryable infrastructure failure."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.over_sampling_batch_size < self.rollout_batch_size:
            raise ValueError(
                f"over_sampling_batch_size={self.over_sampling_batch_size} is below rollout_batch_size="
                f"{self.rollout_batch_size}: launch at least as many trials as a step trains on"
            )
        for name in ("rollout_batch_size", "over_sampling_batch_size"):
            if getattr(self, name) % self.samples_per_task:
                raise ValueError(
                    f"{name}={getattr(self, name)} is no multiple of samples_per_task={self.samples_per_task}, and "
                    "groups are kept whole: change one of the two"
                )
        if self.temperature != 1.0:
            raise ValueError(
                f"temperature={self.temperature}: training samples at temperature 1 from the whole distribution, "
                "because the trainer scores that one; use evaluation.temperature for evaluation"
            )
        return self


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
    """Weight of the KL divergence from the starting policy in the actor's loss. T1: 0. Refused with routing replay."""
    moe_aux_loss_coeff: float = Field(0.0, ge=0)
    """Weight of the actor's load-balancing loss. T1: 0. Refused with routing replay."""
    value_clip: float = Field(0.2, gt=0)
    """Value clip around the values before the update. The first of `critic_steps` updates starts at these values, so
    with `critic_steps` 1 it has no effect."""
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
    tensor_parallel: int = Field(1, ge=1)
    """Tensor parallel size."""
    pipeline_parallel: int = Field(1, ge=1)
    """Pipeline parallel size."""
    context_parallel: int = Field(1, ge=1)
    """Context parallel size."""
    expert_parallel: int = Field(1, ge=1)
    """Expert parallel size."""
    data_parallel: int = Field(1, ge=1)
    """Data parallel size."""

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
        for name in ("kl_loss_coef", "moe_aux_loss_coeff"):
            if getattr(self, name) and self.use_rollout_routing_replay:
                raise ValueError(
                    f"{name}={getattr(self, name)} beside use_rollout_routing_replay=true would pull the actor towards "
                    "a routing that is not the recorded one: set it to 0, or turn the replay off"
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


class EvaluationSettings(Settings):
    every: int = Field(0, ge=0)
    """Evaluate every so many steps; 0: only before the first step and after the last."""
    tasks_per_split: int = Field(48, ge=1)
    """Held-out tasks evaluated of each split (`heldout`, `heldout_family`)."""
    temperature: float = Field(1.0, ge=0)
    """Sampling temperature of evaluation."""


class ClusterSettings(Settings):
    address: str = ""
    """Ray address to join. Empty: a private local instance."""
    num_cpus: int = Field(2, ge=1)
    """CPUs a private instance offers."""
    object_store_mb: int = Field(256, ge=80)
    """Object store of a private instance."""
    control_deadline_s: float = Field(120.0, gt=0)
    """Deadline of every control call; bulk transfers have none."""
    progress_deadline_s: float = Field(1800.0, gt=0)
    """A training call that makes no step forward for this long counts as hung."""
    probe_grace_s: float = Field(30.0, gt=0)
    """No liveness probe before this long after start."""
    probe_period_s: float = Field(5.0, gt=0)
    """Time between liveness probes."""
    min_free_memory_mb: int = Field(3000, ge=0)
    """Refuse to start with less memory free."""
    min_free_disk_mb: int = Field(500, ge=0)
    """Refuse to start with less disk free where the run directory lies."""


class CampaignConfig(Settings):
    name: str = Field("campaign", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Name of the campaign, the first directory level below `run_root`."""
    seed: int = 0
    """Seed of task order and sampling."""
    num_steps: int = Field(40, ge=1)
    """Training steps."""
    run_root: str = "runs"
    """Where run directories are made."""
    checkpoint_every: int = Field(0, ge=0)
    """Write a checkpoint every so many steps; 0: only the final weights."""
    pack_routes: bool = False
    """Store the routes of a run in 53 bits a layer instead of 64. For models with 8 experts a token; reading them then
    takes time (about 1 GB/s) and memory, where plain ones are mapped."""
    checkpoint_content: Literal["exact", "weights"] = "exact"
    """exact: weights in Hugging Face form, and everything `train.load` needs to go on exactly. weights: only the first,
    as T1 does; several times smaller."""
    checkpoint_keep: int = Field(0, ge=0)
    """Keep this many of the newest undamaged checkpoints and remove older ones; 0: keep all."""
    model: ModelSettings = ModelSettings()
    warm_start: WarmStartSettings = WarmStartSettings()
    tasks: TaskSettings = TaskSettings()
    agent: AgentSettings = AgentSettings()
    sandbox: SandboxSettings = SandboxSettings()
    verifier: VerifierSettings = VerifierSettings()
    reward: RewardSettings = RewardSettings()
    rollout: RolloutSettings = RolloutSettings()
    train: TrainSettings = TrainSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    cluster: ClusterSettings = ClusterSettings()

    @model_validator(mode="after")
    def check(self) -> Self:
        agent = self.agent
        room = agent.context_tokens - agent.max_new_tokens - agent.context_margin_tokens
        if room < 64:
            raise ValueError(
                f"agent.context_tokens={agent.context_tokens} leaves {room} tokens for the prompt after "
                f"max_new_tokens={agent.max_new_tokens} and context_margin_tokens={agent.context_margin_tokens}; "
                "raise context_tokens or lower max_new_tokens"
            )
        self._check_agent()
        self._check_deadlines()
        if self.pack_routes and not self.model.actor_path and self.model.num_experts_per_tok != 8:
            raise ValueError(
                "pack_routes=true packs 8 experts a token, "
                f"model.num_experts_per_tok={self.model.num_experts_per_tok}: leave the routes plain"
            )
        if self.train.num_critic_only_steps >= self.num_steps:
            raise ValueError(
                f"train.num_critic_only_steps={self.train.num_critic_only_steps} leaves no actor step in "
                f"num_steps={self.num_steps}; lower the first or raise the second"
            )
        if not self.checkpoint_every and (self.checkpoint_keep or self.checkpoint_content != "exact"):
            raise ValueError(
                f"checkpoint_keep={self.checkpoint_keep} and checkpoint_content={self.checkpoint_content} have no "
                "effect with checkpoint_every=0: set it, or leave them out"
            )
        is_named = self.model.critic_path not in ("", "cold")
        if self.train.advantage == "grpo":
            if self.rollout.samples_per_task < 2:
                raise ValueError(
                    f"train.advantage=grpo compares samples of one task, and rollout.samples_per_task="
                    f"{self.rollout.samples_per_task}: set it to 2 or more"
                )
            if self.reward.scale_by_batch_max and self.train.grpo_std_normalization:
                raise ValueError(
                    "reward.scale_by_batch_max=true has no effect with train.advantage=grpo, which divides by the "
                    "group's deviation: leave it out, or set train.grpo_std_normalization=false"
                )
            if is_named:
                raise ValueError(
                    f"model.critic_path={self.model.critic_path!r} with train.advantage=grpo, which builds no critic: "
                    "leave it out"
                )
        elif self.train.load and is_named:
            raise ValueError(
                f"model.critic_path={self.model.critic_path!r} and train.load={self.train.load!r} both give the "
                "critic: leave the first out"
            )
        return self

    def _check_agent(self) -> None:
        agent = self.agent
        if agent.summarize_above_tokens and not agent.summary_tokens:
            raise ValueError(
                f"agent.summarize_above_tokens={agent.summarize_above_tokens} has no effect with "
                "agent.summary_tokens=0, which turns summaries off: set both or neither"
            )
        if agent.protocol == "xml" and not self.model.actor_path:
            raise ValueError(
                "agent.protocol=xml: the nano model learns JSON from its demonstrations; name a model that can do XML "
                "with model.actor_path, or use agent.protocol=json"
            )
        if agent.protocol == "xml" and agent.prompt == "compact":
            raise ValueError(
                "agent.protocol=xml with agent.prompt=compact: the compact wording does not say what form is expected; "
                "use agent.prompt=full or terminus2"
            )

    def _check_deadlines(self) -> None:
        """A box outlives its agent and its verifier, each at its cap, however late its turn to be opened comes."""
        rollout, sandbox = self.rollout, self.sandbox
        parts = {
            f"pacing ({rollout.max_live_trials} trials at sandbox.create_rate_per_s={sandbox.create_rate_per_s:g})": (
                rollout.max_live_trials / sandbox.create_rate_per_s
            ),
            "opening (cluster.control_deadline_s)": self.cluster.control_deadline_s,
            "agent.agent_timeout_s": self.agent.agent_timeout_s,
            "rollout.verifier_timeout_s": rollout.verifier_timeout_s,
        }
        needed_s = sum(parts.values())
        if needed_s > rollout.trial_deadline_s:
            told = " + ".join(f"{name} {seconds:g}" for name, seconds in parts.items())
            raise ValueError(
                f"rollout.trial_deadline_s={rollout.trial_deadline_s:g} is shorter than what a trial may take: {told} "
                f"= {needed_s:g} s; raise it to {math.ceil(needed_s)} or more, or lower one of these caps"
            )
