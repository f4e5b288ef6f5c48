"""Every setting of a campaign, with its meaning. slime's names where the concept is the same."""

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from t1core.config.capacity import CapacitySettings
from t1core.config.evaluation import EvaluationSettings
from t1core.config.model import ModelSettings, WarmStartSettings
from t1core.config.rollout import (
    AgentSettings,
    RewardSettings,
    RolloutSettings,
    SandboxSettings,
    TaskSettings,
    VerifierSettings,
)
from t1core.config.schedule import ScheduleSettings
from t1core.config.section import Settings
from t1core.config.train import TrainSettings


class ClusterSettings(Settings):
    address: str = ""
    """Ray address to join. Empty: a private local instance."""
    num_cpus: int = Field(2, ge=1)
    """CPUs a private instance offers."""
    num_hosts: int = Field(1, ge=1)
    """Trial hosts, each pinned to a node of its own while there are enough; rollout.max_live_trials is the cap of each,
    and each opens its share of sandbox.create_rate_per_s."""
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
    sinks: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Other programs that get every metric as it is recorded: TensorBoard's event files in the run's directory, or
    W&B. Each is an extra of that name. The run's own files are complete without them."""
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
    schedule: ScheduleSettings = ScheduleSettings()
    train: TrainSettings = TrainSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    cluster: ClusterSettings = ClusterSettings()
    capacity: CapacitySettings = CapacitySettings()

    @model_validator(mode="after")
    def check(self) -> Self:
        for where, agent in (("agent", self.agent), ("evaluation", self.evaluation.agent(self.agent))):
            room = agent.context_tokens - agent.max_new_tokens - agent.context_margin_tokens
            if room >= 64:
                continue
            raise ValueError(
                f"{where}.context_tokens={agent.context_tokens} leaves {room} tokens for the prompt after "
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
        if self.rollout.deterministic and self.schedule.longest_first:
            raise ValueError(
                "schedule.longest_first=true with rollout.deterministic=true: predicted durations come from the clock; "
                "turn one of them off"
            )
        if self.checkpoint_every and self.rollout.publish_every > 1:
            raise ValueError(
                f"checkpoint_every={self.checkpoint_every} with rollout.publish_every={self.rollout.publish_every}: a "
                "checkpoint between publications has no version to go on from; set one of them back"
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

    @property
    def experiments(self) -> tuple[str, ...]:
        """What of this configuration takes back something that t1core otherwise holds, for an experiment on just
        that."""
        rollout, train = self.rollout, self.train
        return tuple(
            line
            for is_set, line in (
                (
                    rollout.token_fidelity == "reencoded",
                    "rollout.token_fidelity=reencoded: answers are trained as their texts encode, not as they were "
                    "sampled",
                ),
                (
                    not train.use_rollout_routing_replay,
                    "train.use_rollout_routing_replay=false: the trainer routes freely, not as the engine did",
                ),
                (
                    train.regularize_under_replay,
                    "train.regularize_under_replay=true: the actor is pulled towards a routing that is not the "
                    "recorded one",
                ),
                (
                    rollout.publish_every > 1,
                    f"rollout.publish_every={rollout.publish_every}: batches are up to so many updates old",
                ),
            )
            if is_set
        )

    @property
    def longest_context_tokens(self) -> int:
        """The longest window that an engine must hold, in training or evaluation."""
        return max(self.agent.context_tokens, self.evaluation.context_tokens)

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
        num_trials = rollout.max_live_trials * self.cluster.num_hosts  # each host has its share of the rate
        parts = {
            f"pacing ({num_trials} trials at sandbox.create_rate_per_s={sandbox.create_rate_per_s:g})": (
                num_trials / sandbox.create_rate_per_s
            ),
            "opening (cluster.control_deadline_s)": self.cluster.control_deadline_s,
            "agent.agent_timeout_s": max(self.agent.agent_timeout_s, self.evaluation.agent_timeout_s),
            "rollout.verifier_timeout_s": rollout.verifier_timeout_s,
        }
        needed_s = sum(parts.values())
        if needed_s > rollout.trial_deadline_s:
            told = " + ".join(f"{name} {seconds:g}" for name, seconds in parts.items())
            raise ValueError(
                f"rollout.trial_deadline_s={rollout.trial_deadline_s:g} is shorter than what a trial may take: {told} "
                f"= {needed_s:g} s; raise it to {math.ceil(needed_s)} or more, or lower one of these caps"
            )
