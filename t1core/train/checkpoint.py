"""The exact part of a checkpoint: networks with their optimisers and behaviour snapshots, in Megatron's format.

A trainer that loads one goes on bit for bit as the one that saved it would have, also in another parallel layout up to
rounding. `checkpoint_directory` says what lies where.
"""

import json
import os
import queue
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.strategies import filesystem_async
from torch.distributed.checkpoint.api import CheckpointException

from t1core.model import optimizer_fixes
from t1core.model.shape import ModelShape
from t1core.model.weights import matching
from t1core.rl.hl_gauss import ValueBins
from t1core.store.atomic import DiskFull
from t1core.train.behaviour import BehaviourSnapshots
from t1core.train.checkpoint_directory import EXACT, EXPORT, damage, recovered
from t1core.train.directories import refuse_other_head
from t1core.train.learner import Learner, Role

SCHEMA_VERSION = 2
_NO_ROOM_BYTES = 64 * 1024  # a file that did not fit has taken what there was
Present = Callable[[Role], AbstractContextManager[Learner]]


@dataclass(frozen=True)
class Terms:
    """What a run must have in common with the one whose checkpoint it goes on from. frozen: by role, the patterns of
    the parts that do not learn; value_bins: None for a scalar critic."""

    shape: ModelShape
    precision: str
    frozen: Mapping[Role, tuple[str, ...]]
    value_bins: ValueBins | None


def save(
    scratch: Path,
    *,
    roles: Sequence[Role],
    present: Present,
    snapshots: BehaviourSnapshots,
    terms: Terms,
) -> None:
    """Write into an existing directory; every rank must call. `present(role)` has a learner on the device."""
    # A synchronous save writes from threads of this process; Megatron would start a manager process for its
    # results, which outlives a killed trainer and holds its output open.
    filesystem_async._results_queue = queue.Queue()
    num_steps = {}
    for role in roles:
        with present(role) as learner:
            optimizer_fixes.prime(learner.optimizer)
            state = learner.model.sharded_state_dict(metadata=_metadata())
            optimizer = learner.optimizer.sharded_state_dict(state, metadata=_metadata())
            _save({"model": state, "optimizer": optimizer}, scratch / role)
            num_steps[role] = learner.num_steps
    with present("actor") as actor:
        for version in snapshots.versions:
            with snapshots.restored(version):
                state = actor.model.sharded_state_dict(metadata=_metadata())
                _save({"model": state}, scratch / f"behaviour_{version}")
    if dist.get_rank() == 0:
        about = {
            "schema_version": SCHEMA_VERSION,
            "behaviour_versions": snapshots.versions,
            "behaviour_is_live": [snapshots.is_live(version) for version in snapshots.versions],
            "num_steps": num_steps,
            "precision": terms.precision,
            "frozen": {role: terms.frozen[role] for role in roles},
        }
        (scratch / EXACT).write_text(json.dumps(about, indent=1))


def load(
    directory: str | os.PathLike,
    *,
    roles: Sequence[Role],
    present: Present,
    snapshots: BehaviourSnapshots,
    terms: Terms,
) -> None:
    """Restore weights, optimisers and snapshots; every rank must call. Before anything changes, ValueError where there
    is no whole checkpoint of ours, or one without a network that is asked for, on other terms, or without the policy
    that `snapshots` pins. Learning rates, betas and weight decay are not restored: they are the present settings'.
    """
    root = Path(directory)
    if dist.get_rank() == 0:
        recovered(root)
    dist.barrier()
    if not (root / EXACT).is_file():
        raise ValueError(
            f"{root} cannot be resumed from: {EXACT} is missing. It is no checkpoint, or holds weights only; such "
            "weights start a run as model.actor_path and model.critic_path"
        )
    if (found := damage(root)) is not None:
        raise ValueError(f"{root} is damaged: {found}; resume from another checkpoint")
    about = json.loads((root / EXACT).read_text())
    if about["schema_version"] > SCHEMA_VERSION:
        raise ValueError(
            f"{root} was written by a newer version of this package: its schema is "
            f"{about['schema_version']}, and this one reads up to {SCHEMA_VERSION}"
        )
    missing = [role for role in roles if role not in about["num_steps"]]
    if missing:
        raise ValueError(f"{root} holds no {missing[0]}: it was written by a run that has none")
    _refuse_other_terms(root, about, roles=roles, terms=terms)
    if snapshots.pinned is not None and snapshots.pinned not in about["behaviour_versions"]:
        raise ValueError(
            f"{root} does not hold the starting policy that kl_loss_coef refers to: resume from a run that had it "
            "on, or start a new one from the checkpoint's hf/actor"
        )
    snapshots.clear()
    with present("actor") as actor:
        for version, is_live in zip(about["behaviour_versions"], about["behaviour_is_live"], strict=True):
            state = {"model": actor.model.sharded_state_dict(metadata=_metadata())}
            actor.model.load_state_dict(_load(state, root / f"behaviour_{version}")["model"])
            actor.num_steps = about["num_steps"]["actor"] if is_live else -1
            snapshots.take(version)
    for role in roles:
        with present(role) as learner:
            optimizer_fixes.prime(learner.optimizer)
            model = learner.model.sharded_state_dict(metadata=_metadata())
            optimizer = learner.optimizer.sharded_state_dict(model, is_loading=True, metadata=_metadata())
            state = _load({"model": model, "optimizer": optimizer}, root / role)
            learner.model.load_state_dict(state["model"])
            learner.optimizer.load_state_dict(state["optimizer"])
            learner.num_steps = about["num_steps"][role]


def _refuse_other_terms(root: Path, about: Mapping[str, Any], *, roles: Sequence[Role], terms: Terms) -> None:
    """ValueError naming the setting in which the checkpoint and this run differ."""
    if (root / EXPORT / "actor").is_dir() and (
        stored := ModelShape.from_hf(root / EXPORT / "actor")
    ) != terms.shape:
        theirs, ours = asdict(stored), asdict(terms.shape)
        name = next(name for name in ours if ours[name] != theirs[name])
        raise ValueError(
            f"{root} holds a network with {name}={theirs[name]}, and model.actor_path names one with "
            f"{name}={ours[name]}: give the actor that the checkpoint's run began with, or its own hf/actor"
        )
    if "critic" in roles:
        refuse_other_head(root / EXPORT / "critic", bins=terms.value_bins, field="load")
    if about["schema_version"] < 2:  # which did not say
        return
    if about["precision"] != terms.precision:
        raise ValueError(
            f"{root} was written with precision={about['precision']!r}, and the settings ask for "
            f"{terms.precision!r}: the main weights of one are not the other's; set it back, or start a new run from "
            "the checkpoint's hf/actor and hf/critic"
        )
    for role in roles:
        stored, asked = tuple(about["frozen"][role]), terms.frozen[role]
        theirs, ours = (
            {weight.hf for weight in matching(patterns, shape=terms.shape, role=role)}
            for patterns in (stored, asked)
        )
        if theirs != ours:
            raise ValueError(
                f"{role}_frozen={list(asked)} is not {list(stored)}, with which {root} was written: what then learnt "
                f"has moments and the rest has none; set {role}_frozen back, or start a new run from the checkpoint's "
                f"hf/{role}, whose moments start anew"
            )


def _metadata() -> dict[str, Any]:
    return {
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
        "distrib_optim_sharding_type": "fully_reshardable",
    }


def _save(state: dict[str, Any], directory: Path) -> None:
    if dist.get_rank() == 0:
        directory.mkdir()
    dist.barrier()
    try:
        dist_checkpointing.save(state, str(directory), async_strategy="mcore")
    except CheckpointException as error:  # it names the class of what a writer met, and drops the words
        if shutil.disk_usage(directory).free < _NO_ROOM_BYTES:
            raise DiskFull.at(directory) from error
        raise


def _load(state: dict[str, Any], directory: Path) -> dict[str, Any]:
    return dist_checkpointing.load(state, str(directory))
