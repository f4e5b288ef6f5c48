"""Exact checkpoints: both networks with their optimisers, and the behaviour snapshots, in Megatron's format.

A trainer that loads one goes on bit for bit as the one that saved it would have, also in another parallel
layout up to rounding. A checkpoint appears whole or not at all.
"""

import json
import os
import queue
from pathlib import Path
from typing import Any

import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.strategies import filesystem_async

from t1core.model import optimizer_fixes
from t1core.train.behaviour import BehaviourSnapshots
from t1core.train.directories import written_whole
from t1core.train.learner import Learner

SCHEMA_VERSION = 1


def save(
    directory: str | os.PathLike, *, learners: dict[str, Learner], snapshots: BehaviourSnapshots
) -> None:
    """Write a checkpoint; every rank must call."""
    # A synchronous save writes from threads of this process; Megatron would start a manager process for its
    # results, which outlives a killed trainer and holds its output open.
    filesystem_async._results_queue = queue.Queue()
    with written_whole(directory) as scratch:
        for name, learner in learners.items():
            optimizer_fixes.prime(learner.optimizer)
            state = learner.model.sharded_state_dict(metadata=_metadata())
            optimizer = learner.optimizer.sharded_state_dict(state, metadata=_metadata())
            _save({"model": state, "optimizer": optimizer}, scratch / name)
        for version in snapshots.versions:
            with snapshots.restored(version):
                state = learners["actor"].model.sharded_state_dict(metadata=_metadata())
                _save({"model": state}, scratch / f"behaviour_{version}")
        if dist.get_rank() == 0:
            about = {
                "schema_version": SCHEMA_VERSION,
                "behaviour_versions": snapshots.versions,
                "behaviour_is_live": [snapshots.is_live(version) for version in snapshots.versions],
                "num_steps": {name: learner.num_steps for name, learner in learners.items()},
            }
            (scratch / "trainer.json").write_text(json.dumps(about, indent=1))


def load(
    directory: str | os.PathLike, *, learners: dict[str, Learner], snapshots: BehaviourSnapshots
) -> None:
    """Restore weights, optimisers and snapshots. ValueError where there is no checkpoint of ours."""
    root = Path(directory)
    if not (root / "trainer.json").is_file():
        raise ValueError(f"{root} is no trainer checkpoint: trainer.json is missing")
    about = json.loads((root / "trainer.json").read_text())
    if about["schema_version"] > SCHEMA_VERSION:
        raise ValueError(
            f"{root} was written by a newer version of this package: its schema is "
            f"{about['schema_version']}, and this one reads up to {SCHEMA_VERSION}"
        )
    snapshots.clear()
    actor = learners["actor"]
    for version, is_live in zip(about["behaviour_versions"], about["behaviour_is_live"], strict=True):
        state = {"model": actor.model.sharded_state_dict(metadata=_metadata())}
        actor.model.load_state_dict(_load(state, root / f"behaviour_{version}")["model"])
        actor.num_steps = about["num_steps"]["actor"] if is_live else -1
        snapshots.take(version)
    for name, learner in learners.items():
        optimizer_fixes.prime(learner.optimizer)
        model = learner.model.sharded_state_dict(metadata=_metadata())
        optimizer = learner.optimizer.sharded_state_dict(model, is_loading=True, metadata=_metadata())
        state = _load({"model": model, "optimizer": optimizer}, root / name)
        learner.model.load_state_dict(state["model"])
        learner.optimizer.load_state_dict(state["optimizer"])
        learner.num_steps = about["num_steps"][name]


def _metadata() -> dict[str, Any]:
    return {
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
        "distrib_optim_sharding_type": "fully_reshardable",
    }


def _save(state: dict[str, Any], directory: Path) -> None:
    if dist.get_rank() == 0:
        directory.mkdir()
    dist.barrier()
    dist_checkpointing.save(state, str(directory), async_strategy="mcore")


def _load(state: dict[str, Any], directory: Path) -> dict[str, Any]:
    return dist_checkpointing.load(state, str(directory))
