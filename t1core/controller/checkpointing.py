"""What the loop keeps beside a checkpoint of the networks, so that a run goes on where it was.

checkpoints/loop_0010/
  batch_0009.safetensors   a batch that was collected and not yet trained on
  loop.json                versions, position in the order of tasks, estimates, live trials; written last

It is written before the networks of the same step, so whole networks have a whole loop beside them. Sampling needs no
state: every draw is a function of the seed, the step, the trial and the place of the token. Live trials do not outlive
their driver, since their boxes end with it: they are launched again, as the next attempt.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t1core.analysis.survival import Survival
from t1core.controller.campaign import Campaign
from t1core.controller.collect import Collected
from t1core.records import Boundary, Failure
from t1core.rollout.estimates import TaskEstimates
from t1core.rollout.skim import next_attempt
from t1core.rollout.trial import TrialSpec
from t1core.store.documents import read_document, write_document
from t1core.store.journal import encode_number
from t1core.store.token_file import read_batch, read_spans, write_tokens
from t1core.tasks.pool import Pool
from t1core.train.checkpoint_directory import EXACT, damage, prune

_LOOP = "loop.json"


@dataclass(frozen=True)
class Resumption:
    """Where a run goes on: after `iteration`, whose networks lie in `networks`. `waiting`: batches to train on.
    `interrupted`: trials that were alive then."""

    iteration: int
    networks: Path
    first: int
    version: int
    position: int
    evaluation_s: float
    waiting: tuple[Collected, ...]
    interrupted: tuple[TrialSpec, ...]
    estimates: TaskEstimates
    survival: Survival


async def save_checkpoint(campaign: Campaign, *, iteration: int, waiting: Sequence[Collected]) -> None:
    """Write the loop, then the networks, after `iteration`; remove what is not to be kept. `waiting`: batches that were
    collected and not yet trained on."""
    config, root = campaign.config, campaign.run.folder("checkpoints")
    if config.checkpoint_content == "exact":
        _write_loop(campaign, root / f"loop_{iteration:04d}", iteration=iteration, waiting=waiting)
    await campaign.crew.save_checkpoint(root / f"step_{iteration:04d}", content=config.checkpoint_content)
    if config.checkpoint_keep:
        for removed in prune(root, keep=config.checkpoint_keep):
            shutil.rmtree(_loop_beside(removed), ignore_errors=True)


def _write_loop(campaign: Campaign, directory: Path, *, iteration: int, waiting: Sequence[Collected]) -> None:
    directory.mkdir(exist_ok=True)
    (directory / _LOOP).unlink(missing_ok=True)
    for collected in waiting:
        write_tokens(
            _batch_path(directory, collected.step), collected.batch, per_token={}, spans=collected.spans
        )
    mark = campaign.mark
    about: dict[str, Any] = {
        "iteration": iteration,
        "first": campaign.first,
        "version": campaign.version,
        "evaluation_s": campaign.evaluation_s,
        "position": mark.position,
        "live": [_live(spec) for spec in mark.live],
        "estimates": mark.estimates,
        "survival": mark.survival,
        "waiting": [
            {
                "step": collected.step,
                "version": collected.version,
                "metrics": {name: encode_number(value) for name, value in collected.metrics.items()},
                "grade_cpu_s": collected.grade_cpu_s,
                "rollout_s": collected.rollout_s,
            }
            for collected in waiting
        ],
    }
    write_document(directory / _LOOP, "loop", about)


def _batch_path(directory: Path, step: int) -> Path:
    return directory / f"batch_{step:04d}.safetensors"


def _loop_beside(networks: Path) -> Path:
    return networks.with_name(networks.name.replace("step_", "loop_"))


def newest_resumption(checkpoints: Path, *, pool: Pool) -> Resumption | None:
    """The newest checkpoint whose networks and loop are whole, or None. ValueError for a live trial's task that the
    pool lacks."""
    for networks in sorted(checkpoints.glob("step_*"), reverse=True):
        loop = _loop_beside(networks) / _LOOP
        if (networks / EXACT).is_file() and damage(networks) is None and loop.is_file():
            return _read(loop, networks=networks, pool=pool)
    return None


def _read(loop: Path, *, networks: Path, pool: Pool) -> Resumption:
    about = read_document(loop, "loop")
    return Resumption(
        iteration=about["iteration"],
        networks=networks,
        first=about["first"],
        version=about["version"],
        position=about["position"],
        evaluation_s=about["evaluation_s"],
        waiting=tuple(_collected(stored, loop.parent) for stored in about["waiting"]),
        interrupted=tuple(_spec(live, pool=pool) for live in about["live"]),
        estimates=TaskEstimates.from_dict(about["estimates"]),
        survival=Survival.from_dict(about["survival"]),
    )


def _collected(stored: Mapping[str, Any], directory: Path) -> Collected:
    path = _batch_path(directory, stored["step"])
    return Collected(
        step=stored["step"],
        version=stored["version"],
        batch=read_batch(path)[0],
        spans=read_spans(path),
        metrics={name: float(value) for name, value in stored["metrics"].items()},
        grade_cpu_s=stored["grade_cpu_s"],
        rollout_s=stored["rollout_s"],
    )


def relaunched(campaign: Campaign, interrupted: Sequence[TrialSpec], *, step: int) -> list[TrialSpec]:
    """The next attempts of trials that ended with their driver; each loss is in the run's failures."""
    for spec in interrupted:
        told = "its driver was gone before it ended; it is launched again with a full budget"
        campaign.run.record_failure(
            Failure(Boundary.OURS, "DriverGone", told, retryable=True), step=step, trial_id=spec.trial_id
        )
    return [next_attempt(spec) for spec in interrupted]


def _live(spec: TrialSpec) -> dict[str, Any]:
    return {
        "trial_id": spec.trial_id,
        "task_id": spec.task.task_id,
        "step": spec.step,
        "attempt": spec.attempt,
        "sampling_seed": spec.sampling_seed,
        "temperature": spec.temperature,
        "predicted_s": spec.predicted_s,
    }


def _spec(live: Mapping[str, Any], *, pool: Pool) -> TrialSpec:
    fields = dict(live)
    task_id = fields.pop("task_id")
    entry = next((entry for entry in pool.entries if entry.task_id == task_id), None)
    if entry is None:
        raise ValueError(
            f"pool {pool.directory} has no task {task_id!r}, whose trial {live['trial_id']} is to be launched again: "
            "give the pool that the run had"
        )
    return TrialSpec(task=pool.task(entry), **fields)
