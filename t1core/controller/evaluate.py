"""Evaluation, in a campaign and by itself: every attempt asked for is accounted for, or the score is incomplete."""

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import t1core
from t1core.analysis.scores import make_score, score_line
from t1core.config import CampaignConfig
from t1core.controller.campaign import Campaign
from t1core.controller.schedule import evaluation_specs
from t1core.records import Score
from t1core.rollout.skim import skim
from t1core.rollout.trial import TrialResult, TrialSpec
from t1core.tasks.index import Entry
from t1core.tasks.pool import Pool

SPLITS = ("heldout", "heldout_family")
_HARNESS = ("agent", "sandbox", "verifier")


async def evaluate(campaign: Campaign, *, step: int, when: str) -> None:
    """Run the attempts at the held-out tasks of the splits that the pool has, and record eval/* and the scores at
    `step`. An incomplete score is recorded as such and gives no eval/*.
    """
    config, crew, run = campaign.config, campaign.crew, campaign.run
    splits = [split for split in SPLITS if split in campaign.pool.splits]
    if not splits:
        return
    run.update_status(phase=f"evaluating {when}")
    began = time.monotonic()
    metrics, trajectories, lines = {}, [], []
    for split in splits:
        score, results = await score_split(
            config,
            campaign.pool,
            campaign.pool.split(split)[: config.evaluation.tasks_per_split],
            split=split,
            step=step,
            launch=crew.launch,
            cut=crew.cut,
            max_live=config.rollout.max_live_trials * config.cluster.num_hosts,
            weights={"checksum": campaign.checksum},
        )
        trajectories += [item.trajectory for item in results]
        run.record_score(score)
        if score.is_complete:
            graded = [item.trajectory.grade for item in results if item.trajectory.grade is not None]
            metrics |= {
                f"eval/{split}/solved_frac": score.resolved,
                f"eval/{split}/reward_mean": score.dense,
                f"eval/{split}/passed_frac": sum(g.passed / g.total for g in graded) / len(graded),
                f"eval/{split}/count": float(score.num_ran),
            }
            lines.append(f"{split} {score.resolved:.1%}")
        else:
            campaign.say(score_line(score))
            lines.append(f"{split} incomplete")
    metrics["time/evaluate_s"] = campaign.evaluation_s = time.monotonic() - began
    run.record_trajectories(trajectories, step=step, kind="eval")
    run.record_metrics(metrics, step=step, kind="eval")
    run.update_status(phase=f"evaluated {when}")
    campaign.say(f"held out, solved {when}: {'  '.join(lines)}  ({metrics['time/evaluate_s']:.0f} s)")


async def evaluate_if_due(campaign: Campaign, iteration: int) -> None:
    """Evaluate after `iteration` steps where the settings want it; the last one is the loop's to do."""
    every = campaign.config.evaluation.every
    if campaign.is_evaluated and every and iteration % every == 0 and iteration < campaign.config.num_steps:
        await evaluate(campaign, step=iteration, when=f"after step {iteration}")


async def score_split(
    config: CampaignConfig,
    pool: Pool,
    entries: Sequence[Entry],
    *,
    split: str,
    step: int,
    launch: Callable[[TrialSpec], Awaitable[TrialResult]],
    cut: Callable[[list[str]], Awaitable[None]],
    max_live: int,
    weights: Mapping[str, Any],
) -> tuple[Score, list[TrialResult]]:
    """Attempt each task as often as the settings say: the score, and every trial that ended."""
    settings = config.evaluation
    tasks = [pool.task(entry) for entry in entries]
    specs = evaluation_specs(config, tasks, step=step, split=split)
    rollout = await skim(
        specs,
        launch=launch,
        cut=cut,
        accept=len(specs),
        max_live=max_live,
        tail="wait",
        max_retries=max(config.rollout.max_retries, 2),
        cleanup_deadline_s=config.cluster.control_deadline_s,
    )
    score = make_score(
        [item.trajectory for item in rollout.results()],
        asked=[spec.task.task_id for spec in specs],
        attempts=settings.attempts,
        step=step,
        split=split,
        protocol=settings.protocol,
        headline=settings.headline,
        harness=harness_of(config),
        limits=limits_of(config),
        pool=pool_of(entries),
        weights=weights,
    )
    return score, rollout.results()


def harness_of(config: CampaignConfig) -> dict[str, Any]:
    """What drives and judges the policy, and how it samples."""
    return {
        "name": "t1core",
        "version": t1core.__version__,
        "sources": _sources_digest(),
        "prompt": config.agent.prompt,
        "protocol": config.agent.protocol,
        "engine": config.rollout.engine,
        "engine_dtype": config.rollout.engine_dtype,
        "deterministic": config.rollout.deterministic,
        "sandbox": config.sandbox.kind,
        "harbor_environment": config.sandbox.harbor_environment,
        "image": config.sandbox.image_dir,
        "image_root": config.sandbox.image_root,
        "temperature": config.evaluation.temperature,
        "top_p": config.evaluation.top_p,
        "top_k": config.evaluation.top_k,
        "reward_kind": config.reward.kind,
        "reward_scale": config.reward.scale,
        "subtract_nop": config.reward.subtract_nop,
    }


def limits_of(config: CampaignConfig) -> dict[str, Any]:
    """What a trial of an evaluation may use."""
    agent = config.evaluation.agent(config.agent).model_dump(exclude={"prompt", "protocol"})
    return agent | {
        "verifier_timeout_s": config.rollout.verifier_timeout_s,
        "trial_deadline_s": config.rollout.trial_deadline_s,
        "box_memory_mb": config.sandbox.memory_mb,
        "box_storage_mb": config.sandbox.storage_mb,
        "box_max_processes": config.sandbox.max_processes,
        "verifier_memory_mb": config.verifier.memory_mb,
        "verifier_max_processes": config.verifier.max_processes,
    }


def pool_of(entries: Sequence[Entry]) -> dict[str, Any]:
    """Which tasks, by a digest of their contents."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: entry.task_id):
        digest.update(f"{entry.task_id} {entry.content_hash}\n".encode())
    return {"num_tasks": len(entries), "digest": digest.hexdigest()[:16]}


@cache
def _sources_digest() -> str:
    """Of the code between a policy and its grade."""
    digest, root = hashlib.sha256(), Path(t1core.__file__).parent
    for path in sorted(path for part in _HARNESS for path in (root / part).rglob("*.py")):
        digest.update(f"\0{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
