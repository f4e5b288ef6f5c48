"""Checks before anything starts: a plan that does not fit this machine is refused with the reason and the way out."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil

from t1core.config import CampaignConfig
from t1core.controller.evaluate import SPLITS
from t1core.sandbox.doctor import probe
from t1core.tasks.pool import Pool
from t1core.train.checkpoint_directory import EXACT, damage, newest_whole


def check_machine(config: CampaignConfig) -> None:
    """Raise ValueError naming every way in which this machine falls short of the configuration."""
    cluster = config.cluster
    found = probe()
    problems = [f"{problem.what}; fix: {problem.fix}" for problem in found.problems]
    if found.is_able and found.num_boxes < config.rollout.max_live_trials:
        problems.append(
            f"{found.num_boxes} boxes are all that {found.limited_by} allows here and "
            f"rollout.max_live_trials={config.rollout.max_live_trials} are asked for: lower it, or raise the limit"
        )
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
    """Raise ValueError when the pool cannot carry the campaign. A held-out split that it lacks is said: it is not
    evaluated.
    """
    train = pool.split("train")
    if config.reward.kind == "dense" and all(entry.num_tests < 2 for entry in train):
        raise ValueError(
            f"reward.kind='dense' on pool {pool.directory}, whose tasks have one test each: there is nothing to count; "
            "use reward.kind='binary' or a pool with several tests a task"
        )
    if config.train.load:
        check_load(Path(config.train.load))
    if config.train.offload and not config.cluster.address:
        from t1core.train.offload import refuse_impossible  # torch, which most campaigns' drivers do without

        refuse_impossible()
    for split in SPLITS:
        if split not in pool.splits:
            say(f"pool {pool.directory} has no split {split!r}: it is not evaluated")
