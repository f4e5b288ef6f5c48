"""Where trials come from and what limits them: tasks, agent, sandbox, verifier, reward, rollout."""

import json
from typing import Literal, Self

from pydantic import Field, model_validator

from t1core.config.section import Settings
from t1core.config.sglang import SGLangSettings


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
    """Reshuffle the training tasks every epoch from the campaign's seed. Off: every epoch in `order`."""
    order: Literal["disk", "most_tests_first", "fewest_tests_first", "easiest_first"] = "disk"
    """Order of the training tasks where they are not shuffled. disk: the pool's own. Otherwise by the number of tests,
    the one mark of a verifier's quality that every pool has, or by level; equals stay as on disk."""
    startup_sample: int = Field(60, ge=0)
    """Training tasks of a `pool` of your own whose tests are run on the untouched workspace before anything starts, to
    see that they answer. Practice tasks are tried when they are generated. 0: none."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.shuffle and self.order != "disk":
            raise ValueError(
                f"order={self.order!r} has no effect with shuffle=true: set shuffle=false, or leave it out"
            )
        return self


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
    kind: Literal["bubblewrap", "docker", "harbor"] = "bubblewrap"
    """What boxes are made of: bubblewrap's processes on this host, a Docker daemon's containers, or an environment of
    Harbor's. Grades are made on this host, whatever the kind. `t1 doctor` says which work here."""
    harbor_environment: str = ""
    """For harbor: its name of the kind of environment (daytona, modal, e2b), or module:Class."""
    harbor_options: str = ""
    """For harbor: a JSON object of that environment's own keyword arguments."""
    memory_mb: int = Field(512, ge=64)
    """Memory a box may use."""
    storage_mb: int = Field(64, ge=1)
    """Disk a box may fill."""
    max_processes: int = Field(64, ge=8)
    """Processes and threads inside a box."""
    image_dir: str = ""
    """Root directory of an unpacked image: graders and bubblewrap boxes see its /usr in place of the host's. Empty: the
    host's."""
    image_root: Literal["read_only", "overlay"] = "read_only"
    """Of the image in `image_dir`, for bubblewrap: its /usr as it is, or all of it as a root that can be written (host
    root, kernel 5.19)."""
    create_rate_per_s: float = Field(40.0, gt=0)
    """Boxes opened a second at most, training and evaluation together. T1: 6."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.kind == "harbor" and not self.harbor_environment:
            raise ValueError(
                "sandbox.kind='harbor' needs sandbox.harbor_environment: a kind of Harbor's (daytona, modal, e2b), or "
                "module:Class"
            )
        if self.image_root == "overlay" and (self.kind != "bubblewrap" or not self.image_dir):
            raise ValueError(
                "sandbox.image_root='overlay' has no effect without sandbox.kind='bubblewrap' and sandbox.image_dir: "
                "set both, or leave it out"
            )
        try:
            options = json.loads(self.harbor_options or "{}")
        except ValueError as error:
            raise ValueError(f"sandbox.harbor_options={self.harbor_options!r} is no JSON: {error}") from None
        if not isinstance(options, dict):
            raise ValueError(f"sandbox.harbor_options={self.harbor_options!r} must be a JSON object")
        if self.kind != "harbor" and (self.harbor_environment or self.harbor_options):
            raise ValueError(
                f"sandbox.harbor_environment and harbor_options have no effect with sandbox.kind={self.kind!r}: set it "
                "to 'harbor', or leave them out"
            )
        return self


class VerifierSettings(Settings):
    memory_mb: int = Field(1024, ge=128)
    """Memory a grade may use, all its processes together; pytest with its plugins takes some 50 MB of it."""
    max_processes: int = Field(64, ge=1)
    """Processes and threads of one grade."""
    max_parallel: int = Field(0, ge=0)
    """Grades run at once on a host. 0: one a core, and 2 at least."""


_READERS_OF_SHAPING = {
    "healthy_turns": ("additive", "multiplicative"),
    "bonus_tests": ("bonus",),
    "penalty_tests": ("additive",),
    "discount_per_turn": ("multiplicative",),
    "discount_floor": ("multiplicative",),
    "idle_penalty_tests": ("multiplicative",),
}


class RewardSettings(Settings):
    kind: str = Field("dense", pattern=r"^(dense|binary|ratio|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$")
    """dense: tests passed over `scale`. binary: all passed. ratio: T1's ratio variant. module:function: a rule of your
    own, called with passed, total and scale."""
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
        if self.scale != (default := type(self).model_fields["scale"].default) and self.kind != "dense":
            raise ValueError(
                f"scale={self.scale:g} has no effect with kind={self.kind!r}, which does not divide by it: leave it at "
                f"{default:g}"
            )
        for name, readers in _READERS_OF_SHAPING.items():
            if getattr(self, name) != (default := type(self).model_fields[name].default) and (
                self.shaping not in readers
            ):
                raise ValueError(
                    f"{name}={getattr(self, name):g} has no effect with shaping={self.shaping!r}; it is read by "
                    f"{' and '.join(readers)}: choose one, or leave it at {default:g}"
                )
        return self


class RolloutSettings(Settings):
    engine: str = Field("embedded", pattern=r"^(embedded|sglang|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$")
    """Kind of inference engine. embedded: transformers, in a process of the campaign, on the CPU. sglang: a real SGLang
    server beside it. module:function: one of your own, made by that function."""
    sglang: SGLangSettings = SGLangSettings()
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
    tail: Literal["cut", "continue", "wait"] = "cut"
    """What happens to launched trials beyond the batch: cancelled (T1); alive in their boxes into the next step, which
    launches that many fewer; or awaited and dropped from the batch."""
    mode: Literal["sync", "one_step", "async"] = "one_step"
    """sync: a batch is collected, then trained on by the very weights that sampled it. one_step: a batch is collected
    while the one before it is trained on, and both end at a barrier. async: batches are collected one after another
    without a barrier, as far ahead as max_staleness allows; needs tail=continue."""
    max_staleness: int = Field(1, ge=1)
    """Versions that the sampler of a trained token may be behind. 1: one step ahead, and no trial spans an update. More
    is for tail=continue, and keeps as many snapshots of the actor beside the newest: a trial that would be trained
    later than that is cut."""
    publish_every: int = Field(1, ge=1)
    """Updates of the actor from one publication to the next. More than 1 is for experiments on staleness: a batch is
    then between 1 and so many updates old when it is trained."""
    token_fidelity: Literal["exact", "reencoded"] = "exact"
    """exact: the sampled ids are trained (TITO). reencoded, for experiments alone: what the text of each answer encodes
    to is trained, with the log-probs and routes of the sampled ids laid over it place by place; the audit then counts
    drift and stops nothing."""
    deterministic: bool = False
    """Two runs of one configuration on one CPU are equal to the bit, and a resumed one to one that ran through: trials
    are accepted in launch order, the engine forwards each request by itself, and a turn ends when the terminal is idle
    (agent.max_wait_s at most), whatever time the model asked for. Several times slower; needs tail=wait."""
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
        if self.mode == "async" and self.tail != "continue":
            raise ValueError(
                f"mode='async' with tail={self.tail!r}: without a barrier there is no tail to deal with, every trial "
                "lives on; set tail='continue'"
            )
        if self.mode == "sync" and self.tail == "continue":
            raise ValueError(
                "mode='sync' with tail='continue': trials that live on are as old as the updates that they span; use "
                "tail='cut' or 'wait'"
            )
        if self.publish_every > 1 and (self.mode != "one_step" or self.tail == "continue"):
            raise ValueError(
                f"publish_every={self.publish_every} with mode={self.mode!r} and tail={self.tail!r}: publications are "
                "left out in one-step mode alone, where no trial spans an update; set publish_every=1"
            )
        if self.deterministic and self.engine != "embedded":
            raise ValueError(
                f"deterministic=true with engine={self.engine!r}: only the embedded engine answers with the same bits "
                "whatever runs beside a request; set engine='embedded'"
            )
        if self.deterministic and self.tail != "wait":
            raise ValueError(
                f"deterministic=true with tail={self.tail!r}: which trials are still running when the batch is full "
                "depends on time; set tail='wait'"
            )
        if self.tail == "continue":
            if self.max_staleness < 2:
                raise ValueError(
                    f"tail='continue' with max_staleness={self.max_staleness}: what a trial sampled before it was "
                    "continued is two versions old when it is trained; set max_staleness to 2 or more, or tail='cut'"
                )
            if self.samples_per_task > 1:
                raise ValueError(
                    f"tail='continue' with samples_per_task={self.samples_per_task}: groups are kept whole within a "
                    "step; use tail='cut' or 'wait', or one sample a task"
                )
        elif self.max_staleness > 1:
            raise ValueError(
                f"max_staleness={self.max_staleness} has no effect with tail={self.tail!r}, where no trial spans an "
                "update: leave it at 1, or use tail='continue'"
            )
        if self.engine != "sglang" and self.sglang != SGLangSettings():
            raise ValueError(
                f"sglang={self.sglang.model_dump(exclude_defaults=True)} has no effect with engine={self.engine!r}: "
                "set engine='sglang', or leave the section out"
            )
        if self.temperature != 1.0:
            raise ValueError(
                f"temperature={self.temperature}: training samples at temperature 1 from the whole distribution, "
                "because the trainer scores that one; use evaluation.temperature for evaluation"
            )
        return self
