"""The controller of a campaign, in one-step mode.

          step t                                    back-pressure
    rollout side: launch tasks -> first K trials    one batch in flight: a step ends when both sides have ended
    train side:   batch of step t-1 -> critic, then one clipped actor step
    barrier:      quiesce -> export -> engine holds it (checksums agree) -> rotate behaviour snapshot -> resume

Batch t is sampled by the weights that the barrier of step t-1 published, and trained one step later: the actor is then
exactly one version ahead (none while the weights have not moved: the first batches and critic-only steps).
"""

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path

from t1core.analysis.turn_growth import turn_growth
from t1core.controller.campaign import Campaign
from t1core.controller.check import check_batch, expected_staleness, weight_version
from t1core.controller.evaluate import evaluate
from t1core.controller.measure import StepClock, measure_rollout
from t1core.controller.rewarding import source_line, training_rewards
from t1core.controller.schedule import step_specs
from t1core.records import Batch
from t1core.rollout.skim import StepRollout, skim
from t1core.train.checkpoint_directory import prune
from t1core.train.result import TrainResult


@dataclass(frozen=True)
class Collected:
    """A step's rollout and the batch made of it, waiting to be trained on."""

    step: int
    version: int
    rollout: StepRollout
    batch: Batch


async def run_loop(campaign: Campaign) -> None:
    """Run the campaign from its first step to its last."""
    config, crew, run = campaign.config, campaign.crew, campaign.run
    # A restored actor is published before anything is sampled: the engine was started from other weights.
    first = await crew.load_checkpoint(Path(config.train.load).resolve()) if config.train.load else 0
    version = first
    await crew.publish(version)
    if campaign.is_evaluated:
        await evaluate(campaign, step=0, when="before training")
    pending: Collected | None = None
    campaign.loop_started = time.monotonic()
    for iteration in range(config.num_steps + 1):
        clock = StepClock(await crew.cpu_s())
        collected, result = await _both_sides(campaign, iteration, version, pending, clock)
        with clock.phase("barrier"):
            trained = first + weight_version(
                iteration, num_critic_only_steps=config.train.num_critic_only_steps
            )
            if trained != version:
                version = trained
                clock.publication = await crew.publish(version)
        if pending is not None and result is not None:
            await _record(campaign, pending, result, clock, beside=collected)
            if config.checkpoint_every and iteration % config.checkpoint_every == 0:
                await _save_checkpoint(campaign, iteration)
            every = config.evaluation.every
            if campaign.is_evaluated and every and iteration % every == 0 and iteration < config.num_steps:
                await evaluate(campaign, step=iteration, when=f"after step {iteration}")
        pending = collected
    for role in ("actor", "critic") if config.train.advantage == "gae" else ("actor",):
        await crew.save_weights(run.folder("checkpoints") / "final" / role, role)
    if campaign.is_evaluated:
        await evaluate(campaign, step=config.num_steps, when="after training")


async def _save_checkpoint(campaign: Campaign, iteration: int) -> None:
    config, root = campaign.config, campaign.run.folder("checkpoints")
    await campaign.crew.save_checkpoint(root / f"step_{iteration:04d}", content=config.checkpoint_content)
    if config.checkpoint_keep:
        prune(root, keep=config.checkpoint_keep)


async def _both_sides(
    campaign: Campaign, iteration: int, version: int, pending: Collected | None, clock: StepClock
) -> tuple[Collected | None, TrainResult | None]:
    """Collect batch `iteration` and train on `pending`, at the same time. If one side fails, the other is ended."""
    async with asyncio.TaskGroup() as group:
        collecting = training = None
        if iteration < campaign.config.num_steps:
            collecting = group.create_task(_collect(campaign, iteration, version, clock))
        if pending is not None:
            training = group.create_task(_train(campaign, pending, version, clock))
    return (collecting.result() if collecting else None), (training.result() if training else None)


async def _collect(campaign: Campaign, step: int, version: int, clock: StepClock) -> Collected:
    rollout_config = campaign.config.rollout
    with clock.phase("rollout"):
        rollout = await skim(
            step_specs(campaign.config, campaign.pool, step=step),
            launch=campaign.crew.launch,
            cut=campaign.crew.cut,
            accept=rollout_config.rollout_batch_size,
            max_live=rollout_config.max_live_trials,
            group_size=rollout_config.samples_per_task,
            tail=rollout_config.tail,
            max_retries=rollout_config.max_retries,
            cleanup_deadline_s=campaign.config.cluster.control_deadline_s,
        )
    campaign.run.record_trajectories(
        [result.trajectory for result in rollout.results()], step=step, outcomes=rollout.outcomes()
    )
    if len(rollout.accepted) < rollout_config.min_accepted_frac * rollout_config.rollout_batch_size:
        reasons = {str(item.trajectory.failure) for item in rollout.failed} or {"every trial was held back"}
        raise RuntimeError(
            f"step {step}: {len(rollout.accepted)} of {rollout.launched} trials are usable, below "
            f"rollout.min_accepted_frac={rollout_config.min_accepted_frac} of a batch: "
            f"{'; '.join(sorted(reasons))[:800]}"
        )
    rewards = training_rewards(rollout.accepted, campaign.config.reward)
    rows = [
        replace(row, reward=reward)
        for result, reward in zip(rollout.accepted, rewards, strict=True)
        for row in result.rows
    ]
    sources = [
        item.trajectory.grade.source for item in rollout.results() if item.trajectory.grade is not None
    ]
    if line := source_line(sources):
        campaign.say(f"step {step + 1}: {line}")
    of_row = [result.trajectory for result in rollout.accepted for _ in result.rows]
    groups = [rollout.groups[t.trial_id] for t in of_row] if rollout_config.samples_per_task > 1 else None
    batch = Batch.from_rows(rows, step=step, num_tests=[t.num_tests for t in of_row], groups=groups)
    check_batch(batch, rollout.accepted, version=version)
    return Collected(step, version, rollout, batch)


async def _train(campaign: Campaign, pending: Collected, version: int, clock: StepClock) -> TrainResult:
    num_critic_only_steps = campaign.config.train.num_critic_only_steps
    lag = expected_staleness(pending.step, num_critic_only_steps=num_critic_only_steps)
    assert version - pending.version == lag, (
        f"step {pending.step}: sampled by version {pending.version}, trained at version {version}, expected lag {lag}"
    )
    with clock.phase("train"):
        return await campaign.crew.train(
            pending.batch, update_actor=pending.step >= num_critic_only_steps, expected_version_lag=lag
        )


async def _record(
    campaign: Campaign, pending: Collected, result: TrainResult, clock: StepClock, *, beside: Collected | None
) -> None:
    """Write what is known of batch `pending`; time and CPU are of this iteration, in which `beside` was collected."""
    run, crew = campaign.run, campaign.crew
    metrics = measure_rollout(pending.rollout, pending.batch) | result.metrics
    metrics |= {f"time/{phase}_s": seconds for phase, seconds in result.timings_s.items()}
    metrics |= clock.metrics(await crew.cpu_s(), beside.rollout if beside else None)
    metrics |= {f"memory/{part}_mb": size for part, size in (await crew.memory_mb()).items()}
    metrics |= _watch_turns(campaign, metrics)
    spans = [row.spans for item in pending.rollout.accepted for row in item.rows]
    run.record_tokens(
        pending.batch, per_token=result.per_token, spans=spans, pack_routes=campaign.config.pack_routes
    )
    run.record_metrics(metrics, step=pending.step)
    run.update_status(step=pending.step, phase=f"step {pending.step + 1} of {campaign.config.num_steps}")
    campaign.say(progress_line(campaign, pending.step, metrics))


def _watch_turns(campaign: Campaign, metrics: dict[str, float]) -> dict[str, float]:
    """Whether turns have grown, and why; a cause that was not named in the step before is said."""
    campaign.steps.append(metrics)
    before, growth = campaign.growth, turn_growth(campaign.steps)
    campaign.growth = growth
    if growth is None:
        return {}
    if before is None or before.cause is not growth.cause:
        campaign.say(str(growth))
    return {f"agent/turn_growth/{growth.cause}": growth.last - growth.first}


def progress_line(campaign: Campaign, step: int, metrics: dict[str, float]) -> str:
    """One line for people: step, reward, solved, explained variance, log-prob gap, time left."""
    done, total = step + 1, campaign.config.num_steps
    left = (time.monotonic() - campaign.loop_started) / done * (total - done) + campaign.evaluation_s
    if metrics["train/skipped"]:
        return f"step {done:3d}/{total}  no optimiser step: the batch holds no trainable token"
    judged = (
        f"flat groups {metrics['reward/zero_variance_group_frac']:.0%}"
        if campaign.config.train.advantage == "grpo"
        else f"EV {metrics['critic/explained_variance']:+.2f}"
    )
    if metrics.get("actor/skipped"):
        is_flat = metrics.get("reward/zero_variance_group_frac") == 1
        why = "every group is flat" if is_flat else "no token has a weight"
        judged += f"  no actor step: {why}"
    return (
        f"step {done:3d}/{total}  reward {metrics['reward/mean']:.3f}  solved {metrics['reward/solved_frac']:5.1%}  "
        f"{judged}  gap {metrics['logprob_gap/abs_mean']:.4f}  "
        f"{metrics['time/step_s']:5.1f} s/step  {left / 60:4.1f} min left"
    )
