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
from collections.abc import Callable
from dataclasses import dataclass, replace

from t1core.cluster import Crew
from t1core.config import CampaignConfig
from t1core.controller.check import check_batch, expected_staleness, weight_version
from t1core.controller.evaluate import evaluate
from t1core.controller.measure import StepClock, measure_rollout
from t1core.controller.rewarding import source_line, training_rewards
from t1core.controller.schedule import step_specs
from t1core.records import Batch
from t1core.rollout.skim import StepRollout, skim
from t1core.store import Run
from t1core.tasks.pool import Pool
from t1core.train.result import TrainResult

Say = Callable[[str], None]


@dataclass
class Campaign:
    """What the loop works on. `say` gets one line a step for people."""

    config: CampaignConfig
    crew: Crew
    run: Run
    pool: Pool
    say: Say = print
    is_evaluated: bool = True
    loop_started: float = 0.0
    evaluation_s: float = 0.0


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
    version = 0
    await crew.publish(version)
    if campaign.is_evaluated:
        await evaluate(campaign, step=0, when="before training")
    pending: Collected | None = None
    campaign.loop_started = time.monotonic()
    for iteration in range(config.num_steps + 1):
        clock = StepClock(await crew.cpu_s())
        collected, result = await _both_sides(campaign, iteration, version, pending, clock)
        with clock.phase("barrier"):
            trained = weight_version(iteration, num_critic_only_steps=config.train.num_critic_only_steps)
            if trained != version:
                version = trained
                clock.publication = await crew.publish(version)
        if pending is not None and result is not None:
            await _record(campaign, pending, result, clock, beside=collected)
            if config.checkpoint_every and iteration % config.checkpoint_every == 0:
                await crew.save_checkpoint(run.folder("checkpoints") / f"step_{iteration:04d}")
            every = config.evaluation.every
            if campaign.is_evaluated and every and iteration % every == 0 and iteration < config.num_steps:
                await evaluate(campaign, step=iteration, when=f"after step {iteration}")
        pending = collected
    for role in ("actor", "critic"):
        await crew.save_weights(run.folder("checkpoints") / "final" / role, role)
    if campaign.is_evaluated:
        await evaluate(campaign, step=config.num_steps, when="after training")


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
    sources = [item.trajectory.grade.source for item in rollout.results() if item.trajectory.grade is not None]
    if line := source_line(sources):
        campaign.say(f"step {step + 1}: {line}")
    num_tests = [result.trajectory.num_tests for result in rollout.accepted for _ in result.rows]
    batch = Batch.from_rows(rows, step=step, num_tests=num_tests)
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
    metrics |= clock.metrics(await crew.cpu_s(), beside.rollout if beside else None)
    metrics |= {f"memory/{part}_mb": size for part, size in (await crew.memory_mb()).items()}
    spans = [row.spans for item in pending.rollout.accepted for row in item.rows]
    run.record_tokens(pending.batch, per_token=result.per_token, spans=spans)
    run.record_metrics(metrics, step=pending.step)
    run.update_status(step=pending.step, phase=f"step {pending.step + 1} of {campaign.config.num_steps}")
    campaign.say(progress_line(campaign, pending.step, metrics))


def progress_line(campaign: Campaign, step: int, metrics: dict[str, float]) -> str:
    """One line for people: step, reward, solved, explained variance, log-prob gap, time left."""
    done, total = step + 1, campaign.config.num_steps
    left = (time.monotonic() - campaign.loop_started) / done * (total - done) + campaign.evaluation_s
    if metrics["train/skipped"]:
        return f"step {done:3d}/{total}  no optimiser step: the batch holds no trainable token"
    return (
        f"step {done:3d}/{total}  reward {metrics['reward/mean']:.3f}  solved {metrics['reward/solved_frac']:5.1%}  "
        f"EV {metrics['critic/explained_variance']:+.2f}  gap {metrics['logprob_gap/abs_mean']:.4f}  "
        f"{metrics['time/step_s']:5.1f} s/step  {left / 60:4.1f} min left"
    )
