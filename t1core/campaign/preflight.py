"""Checks before anything starts: a plan that does not fit this machine is refused with the reason and the way out."""

import math
import os
import shutil
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import psutil

from t1core.agent.choose import wording_of
from t1core.agent.context import capped_line
from t1core.agent.tokenizer import ChatTokenizer
from t1core.campaign.planning import check_capacity
from t1core.campaign.sinks import missing_packages
from t1core.cluster.agent_limits import agent_limits
from t1core.cluster.engines import check_engine, sglang_python
from t1core.config import CampaignConfig
from t1core.controller.evaluate import SPLITS
from t1core.sandbox.descriptors import raise_descriptors
from t1core.sandbox.doctor import probe
from t1core.sandbox.kinds import probe_kind
from t1core.tasks.index import VERIFIER_KEY
from t1core.tasks.order import spread
from t1core.tasks.pool import Pool
from t1core.train.checkpoint_directory import EXACT, damage, newest_whole
from t1core.verifier.reward import counted_reward

_MAX_READ_TASKS = 2000  # instructions that are tokenised before a start, some two seconds


def check_machine(config: CampaignConfig, *, starts_engine: bool = True) -> None:
    """Raise ValueError naming every way in which this machine falls short of the configuration. The limit on open files
    is raised where the boxes need it and it may be. Without `starts_engine` the engine's own environment may be absent.
    """
    cluster = config.cluster
    hosts_here = 1 if cluster.address else cluster.num_hosts
    too_few = raise_descriptors(config.rollout.max_live_trials * hosts_here)  # before what counts them
    found = probe_kind(config.sandbox.kind)
    problems = [f"{problem.what}; fix: {problem.fix}" for problem in found.problems]
    if config.sandbox.image_root == "overlay" and (lacks := probe().overlay) is not None:
        problems.append(f"sandbox.image_root=overlay: {lacks.what}; fix: {lacks.fix}")
    if too_few:
        problems.append(too_few)
    elif (
        not found.problems
        and found.num_boxes is not None
        and found.num_boxes < config.rollout.max_live_trials * hosts_here
    ):
        problems.append(
            f"{found.num_boxes} boxes are all that {found.limited_by} allows here and "
            f"rollout.max_live_trials={config.rollout.max_live_trials} are asked for"
            + (f" on each of cluster.num_hosts={hosts_here}" if hosts_here > 1 else "")
            + ": lower it, or raise the limit"
        )
    problems += missing_packages(config.sinks)
    free_mb = psutil.virtual_memory().available / 2**20
    if free_mb < cluster.min_free_memory_mb:
        problems.append(
            f"{free_mb:.0f} MB of memory are available and cluster.min_free_memory_mb={cluster.min_free_memory_mb} are "
            "wanted: close something, or lower the batch and the setting"
        )
    root = Path(config.run_root).resolve()
    existing = next(path for path in (root, *root.parents) if path.is_dir())
    disk_mb = shutil.disk_usage(existing).free / 2**20
    if disk_mb < cluster.min_free_disk_mb:
        problems.append(
            f"{disk_mb:.0f} MB of disk are free at {existing} and cluster.min_free_disk_mb={cluster.min_free_disk_mb} "
            "are wanted: free some space, or set run_root elsewhere"
        )
    python = sglang_python(config.rollout.sglang.python)
    if starts_engine and config.rollout.engine == "sglang" and not python.is_file():
        problems.append(
            f"rollout.engine=sglang runs in an environment of its own, and there is no {python}: make it with "
            "`./setup.sh sglang` (`./setup.sh sglang-cpu` without a GPU), or name another with rollout.sglang.python"
        )
    try:
        check_engine(config)
    except ValueError as refused:
        problems.append(str(refused))
    if not cluster.address:
        cores = len(os.sched_getaffinity(0))
        needed = config.train.num_ranks + 1
        if needed > max(2, 4 * cores):
            problems.append(
                f"{config.train.num_ranks} trainer ranks and one engine are asked of {cores} cores; lower the parallel "
                "degrees in [train], or join a cluster with cluster.address"
            )
    if problems:
        raise ValueError("this machine cannot run the campaign:\n  - " + "\n  - ".join(problems))


def check_load(checkpoint: Path) -> None:
    """Raise ValueError when `train.load` names no checkpoint that can be gone on from."""
    if not (checkpoint / EXACT).is_file():
        newest = newest_whole(checkpoint)
        hint = f"; the newest checkpoint below it is {newest}" if newest else ""
        raise ValueError(
            f"train.load={str(checkpoint)!r} has no {EXACT}: name a checkpoint that was written with "
            f"checkpoint_content=exact{hint}"
        )
    if (found := damage(checkpoint)) is not None:
        raise ValueError(f"train.load={str(checkpoint)!r} is damaged: {found}; use another checkpoint")


def check_plan(config: CampaignConfig, pool: Pool, *, say: Callable[[str], None] = print) -> None:
    """Raise ValueError when the pool cannot carry the campaign. What has no effect is said: the critic's settings in a
    campaign without one, and a held-out split that the pool lacks, which is not evaluated.
    """
    check_capacity(config)
    if config.train.advantage == "grpo" and (unread := _settings_of_the_critic(config)):
        say(f"train.advantage=grpo builds no critic, so these have no effect: {', '.join(unread)}")
    train = pool.split("train")
    if config.reward.kind == "dense" and all(entry.verifier == "binary" for entry in train):
        raise ValueError(
            f"reward.kind='dense' on pool {pool.directory}, whose verifiers are binary (one test a task, or "
            f"metadata.{VERIFIER_KEY} says so): there is nothing to count; use reward.kind='binary' or a pool with "
            "several tests a task"
        )
    if ":" in config.reward.kind:
        counted_reward(config.reward.kind, passed=1, total=2, scale=config.reward.scale)
    if config.train.load:
        check_load(Path(config.train.load))
    if config.train.offload and not config.cluster.address:
        from t1core.train.offload import refuse_impossible  # torch, which most campaigns' drivers do without

        refuse_impossible()
    for split in SPLITS:
        if split not in pool.splits:
            say(f"pool {pool.directory} has no split {split!r}: it is not evaluated")


def _settings_of_the_critic(config: CampaignConfig) -> list[str]:
    """Those that presets hold for PPO, where they are not at their defaults, as `key=value`."""
    rates, start = type(config.train.critic).model_fields, type(config.warm_start).model_fields
    keys = [f"train.critic.{name}" for name in rates]
    keys += [f"warm_start.{name}" for name in start if name.startswith("critic_")]
    keys.append("model.critic_path")
    default = CampaignConfig()
    return [
        f"{key}={value}" for key in keys if (value := attrgetter(key)(config)) != attrgetter(key)(default)
    ]


def check_budgets(
    config: CampaignConfig, pool: Pool, *, actor: Path, say: Callable[[str], None] = print
) -> None:
    """Check the context budget with the model's tokenizer and hold it, and the caps on time, against every task.

    Raises ValueError for a budget that does not add up, or one that no task fits. What some tasks lose is said: prompts
    that are too long from the start, and time that a cap takes from what they ask for.
    """
    agent = config.agent
    tokenizer = ChatTokenizer.load(actor)
    wording = wording_of(agent.prompt, protocol=agent.protocol)
    limits = agent_limits(agent, tokenizer=tokenizer, wording=wording)
    if limits.summary is not None:
        say(
            f"context: prompts of up to {limits.summary.trigger} tokens, then a summary of up to "
            f"{limits.summary.summary} (asked for in {limits.summary.request}), in a window of {limits.context_tokens}"
        )
    splits = [pool.split(split) for split in ("train", *SPLITS) if split in pool.splits]
    num_tasks = sum(map(len, splits))
    read = [
        entry
        for split in splits
        for entry in spread(split, math.ceil(len(split) * min(1.0, _MAX_READ_TASKS / num_tasks)))
    ]
    lengths: list[int] = []
    too_long: list[str] = []
    most_stages = 1
    for task in map(pool.task, read):
        most_stages = max(most_stages, len(task.stages))
        lengths.append(len(tokenizer.first_prompt(wording.first_prompt(task.instruction, ""))))
        if lengths[-1] > limits.max_prompt_tokens:
            too_long.append(task.task_id)
    if len(read) < num_tasks:
        say(
            f"{len(read)} of {num_tasks} instructions, at even distances, are held against the context budget"
        )
    if read and len(too_long) == len(read):
        raise ValueError(
            f"agent.context_tokens={agent.context_tokens} allows prompts of {limits.max_prompt_tokens} tokens, and the "
            f"first prompts of pool {pool.directory} have {min(lengths)} and more: no task fits; raise it"
        )
    if too_long:
        say(
            f"{len(too_long)} of {len(read)} tasks have a first prompt above {limits.max_prompt_tokens} tokens and "
            f"end before their first turn: {_some(too_long)}"
        )
    needed_s = agent.agent_timeout_s + most_stages * config.rollout.verifier_timeout_s
    if most_stages > 1 and needed_s > config.rollout.trial_deadline_s:
        raise ValueError(
            f"rollout.trial_deadline_s={config.rollout.trial_deadline_s:g} is shorter than a trial of a task in "
            f"{most_stages} steps may take: agent.agent_timeout_s={agent.agent_timeout_s:g} + {most_stages} x "
            f"rollout.verifier_timeout_s={config.rollout.verifier_timeout_s:g} = {needed_s:g} s; raise it, or lower "
            "one of these caps"
        )
    for what, setting, cap_s, field in (
        ("agent", "agent.agent_timeout_s", agent.agent_timeout_s, "agent_timeout_s"),
        (
            "verifier",
            "rollout.verifier_timeout_s",
            config.rollout.verifier_timeout_s,
            "verifier_timeout_s",
        ),
    ):
        asked = [getattr(entry, field) for split in splits for entry in split]
        if line := capped_line(what, asked_s=asked, cap_s=cap_s, setting=setting):
            say(line)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
