"""A campaign built but not started: every configuration object that its processes would make, and their plan.

For a plan that this machine can't hold. Nothing is loaded and no process is started; what the objects themselves refuse
(degrees that do not divide, a window that does not add up) is refused here, and a plan that does not fit the GPUs that
`capacity.gpu_memory_gib` names.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t1core.campaign.planning import check_capacity
from t1core.cluster.deadlines import Deadlines
from t1core.cluster.engines import cache_tokens, check_engine
from t1core.config import CampaignConfig


@dataclass(frozen=True)
class Plan:
    """What a campaign would be made of.

    transformer and optimizer: Megatron's configurations by role. server_flags: of each SGLang server; () for the
    embedded engine. refusal: why the campaign would end at its start, None if nothing is known to be in the way.
    """

    train_settings: Any
    transformer: dict[str, Any]
    optimizer: dict[str, Any]
    server_flags: tuple[str, ...]
    deadlines: Deadlines
    num_ranks: int
    lines: tuple[str, ...]
    refusal: str | None


def dry_run(config: CampaignConfig) -> Plan:
    """Build everything. Raises ValueError for what can't be built; what can be, and would not be started, is the plan's
    `refusal`."""
    import torch

    from t1core.cluster.training import train_settings
    from t1core.model import cpu_shim
    from t1core.model.known import shape_of
    from t1core.model.spec import transformer_config
    from t1core.train.learner import optimizer_config

    if not config.model.actor_path:
        raise ValueError(
            "model.actor_path is empty: the nano model's own campaign is run, not rehearsed; name a model"
        )
    cpu_shim.install()
    train = config.train
    roles = ("actor", "critic") if train.advantage == "gae" else ("actor",)
    shape = shape_of(config.model.actor_path)
    critic = config.model.critic_path if Path(config.model.critic_path or "cold").is_dir() else None
    settings = train_settings(config, actor_path=config.model.actor_path, critic_path=critic, shape=shape)
    settings.layout.check(shape, world_size=train.num_ranks)
    check_capacity(config)
    dtype = torch.bfloat16 if train.precision == "bf16" else torch.float32
    transformer = {
        role: transformer_config(
            shape,
            layout=settings.layout,
            dtype=dtype,
            routing_replay=role == "actor" and train.use_rollout_routing_replay,
            recompute=train.recompute,
            load_balancing=role == "actor" and train.moe_aux_loss_coeff > 0,
        )
        for role in roles
    }
    optimizer = {role: optimizer_config(getattr(settings, role), dtype=dtype) for role in roles}
    flags = _server_flags(config)
    deadlines = Deadlines.of(config)
    return Plan(
        train_settings=settings,
        transformer=transformer,
        optimizer=optimizer,
        server_flags=flags,
        deadlines=deadlines,
        num_ranks=train.num_ranks,
        lines=tuple(_lines(config, shape=shape, settings=settings, flags=flags, deadlines=deadlines)),
        refusal=_refusal(config),
    )


def _refusal(config: CampaignConfig) -> str | None:
    try:
        check_engine(config)
    except ValueError as refused:
        return str(refused)
    return None


def _server_flags(config: CampaignConfig) -> tuple[str, ...]:
    if config.rollout.engine != "sglang":
        return ()
    from t1core.rollout.sglang.flags import server_flags

    chosen = config.rollout.sglang
    return tuple(
        server_flags(
            Path(config.model.actor_path),
            device="cpu" if chosen.device == "cpu" else "cuda",
            dtype=config.rollout.engine_dtype,
            port=30_000,
            weight_version=0,
            context_length=config.agent.context_tokens,
            max_running_requests=config.rollout.max_live_trials,
            max_total_tokens=cache_tokens(config),
            tensor_parallel=chosen.tensor_parallel,
            gpu=chosen.gpu,
            gpu_memory_frac=chosen.gpu_memory_frac,
            cuda_graphs=chosen.cuda_graphs,
            extra=chosen.flags,
        )
    )


def _lines(
    config: CampaignConfig, *, shape: Any, settings: Any, flags: tuple[str, ...], deadlines: Deadlines
) -> list[str]:
    train, rollout, agent, layout = config.train, config.rollout, config.agent, settings.layout
    rows = rollout.rollout_batch_size // train.data_parallel
    wall = agent.context_tokens
    return [
        f"model      {shape.num_layers} layers of {shape.hidden_size}, {shape.num_experts} experts of which "
        f"{shape.num_experts_per_tok} serve a token; routes {shape.num_layers * shape.num_experts_per_tok} B a token",
        f"trainer    {train.num_ranks} ranks: TP {layout.tp} x PP {layout.pp} x CP {layout.cp} x DP "
        f"{train.data_parallel}, EP {layout.ep}: {shape.num_experts // layout.ep} experts a rank; {train.precision} "
        f"weights, fp32 gradients and optimiser{', recomputation' if train.recompute else ''}"
        f"{', actor and critic take turns' if train.offload else ''}",
        f"batch      {rollout.rollout_batch_size} of {rollout.over_sampling_batch_size} launched; {rows} rows a data "
        f"parallel rank; a row of {wall} tokens is {wall // layout.cp} a context parallel rank, beside "
        f"max_tokens_per_gpu={train.max_tokens_per_gpu}",
        *(
            f"{role:10s} Adam {adam.betas}, lr {adam.lr.peak:g} {adam.lr.style}, weight decay {adam.weight_decay:g}, "
            f"clip {adam.clip_grad:g}"
            for role, adam in (("actor", settings.actor), ("critic", settings.critic))
            if role == "actor" or train.advantage == "gae"
        ),
        f"walls      context {wall} tokens, {agent.max_turns} turns, agent {agent.agent_timeout_s:g} s, verifier "
        f"{rollout.verifier_timeout_s:g} s, trial {deadlines.trial_s:g} s",
        f"deadlines  control {deadlines.control_s:g} s; probes from {config.cluster.probe_grace_s:g} s every "
        f"{config.cluster.probe_period_s:g} s; collectives {train.group_timeout_s:g} s among all ranks, "
        f"{train.parallel_group_timeout_s:g} s within a dimension",
        f"boxes      {config.sandbox.create_rate_per_s:g} a second, {config.sandbox.storage_mb} MB of disk each",
        f"steps      {config.num_steps}, the first {train.num_critic_only_steps} for the critic alone; checkpoints "
        f"({config.checkpoint_content}) every {config.checkpoint_every}",
        f"start      actor {config.model.actor_path}, critic {config.model.critic_path or 'cold'}",
        "engine     " + (f"sglang {' '.join(flags)}" if flags else "embedded"),
    ]
