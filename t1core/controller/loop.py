"""The controller of a campaign, in one-step mode.

          step t                                    back-pressure
    rollout side: launch tasks -> first K trials    one batch in flight: a step ends when both sides have ended
    train side:   batch of step t-1 -> critic, then one clipped actor step
    barrier:      quiesce -> export -> engine holds it (checksums agree) -> rotate behaviour snapshot -> resume

Batch t is sampled by the weights that the barrier of step t-1 published, and trained one step later: the actor is then
exactly one version ahead (none while the weights have not moved: the first batches and critic-only steps).

With `rollout.tail=continue` trials live on across the barrier: their requests are frozen in place and go on with the
state of the old weights, and only a later call starts from the new ones. Each token keeps the version, the log-prob and
the routes of the weights that sampled it, is trained against the snapshot of that version, and is at most
`rollout.max_staleness` versions old then.
"""

import asyncio
import time
from pathlib import Path

from t1core.analysis.turn_growth import turn_growth
from t1core.controller.campaign import Campaign
from t1core.controller.check import expected_staleness, weight_version
from t1core.controller.checkpointing import Resumption, relaunched, save_checkpoint
from t1core.controller.collect import Collected, collect
from t1core.controller.evaluate import evaluate
from t1core.controller.measure import StepClock
from t1core.rollout.skim import end_trials
from t1core.train.result import TrainResult


async def run_loop(campaign: Campaign, resumption: Resumption | None = None) -> None:
    """Run the campaign from its first step, or from a resumption, to its last."""
    try:
        await _run_steps(campaign, resumption)
    finally:
        await end_trials(
            campaign.carried,
            cut=campaign.crew.cut,
            within_s=campaign.config.cluster.control_deadline_s,
        )


async def _run_steps(campaign: Campaign, resumption: Resumption | None) -> None:
    config, crew, run = campaign.config, campaign.crew, campaign.run
    campaign.loop_started = time.monotonic()
    if resumption is None:
        # A restored actor is published before anything is sampled: the engine was started from other weights.
        first = await crew.load_checkpoint(Path(config.train.load).resolve()) if config.train.load else 0
        version, start, pending = first, 0, None
        campaign.checksum = (await crew.publish(version)).checksum
        if campaign.is_evaluated:
            await evaluate(campaign, step=0, when="before training")
        campaign.loop_started = time.monotonic()
    else:
        first, version, start, pending = await _go_on(campaign, resumption)
    for iteration in range(start, config.num_steps + 1):
        clock = StepClock(await crew.cpu_s())
        collected, result = await _both_sides(campaign, iteration, version, pending, clock)
        with clock.phase("barrier"):
            trained = first + weight_version(
                iteration, num_critic_only_steps=config.train.num_critic_only_steps
            )
            if trained != version:
                version = trained
                mode = "in_place" if campaign.carried else "abort"
                clock.publication = await crew.publish(version, mode=mode)
                campaign.checksum = clock.publication.checksum
        if pending is not None and result is not None:
            await _record(campaign, pending, result, clock, beside=collected)
            if config.checkpoint_every and iteration % config.checkpoint_every == 0:
                await save_checkpoint(
                    campaign, iteration=iteration, first=first, version=version, pending=collected
                )
            await _evaluate_if_due(campaign, iteration)
        pending = collected
    for role in ("actor", "critic") if config.train.advantage == "gae" else ("actor",):
        await crew.save_weights(run.folder("checkpoints") / "final" / role, role)
    if campaign.is_evaluated:
        await evaluate(campaign, step=config.num_steps, when="after training")


async def _go_on(campaign: Campaign, resumption: Resumption) -> tuple[int, int, int, Collected | None]:
    """Bring every part where the resumption was: (first version, version, next iteration, waiting batch)."""
    crew, run = campaign.crew, campaign.run
    version = await crew.load_checkpoint(resumption.networks)
    assert version == resumption.version, (
        f"{resumption.networks} restores version {version}, the loop beside it was at {resumption.version}"
    )
    campaign.checksum = (await crew.publish(version)).checksum
    campaign.position = resumption.position
    campaign.evaluation_s = resumption.evaluation_s
    campaign.estimates, campaign.survival = resumption.estimates, resumption.survival
    campaign.steps = run.metrics("train").to_dict("records")
    campaign.growth = turn_growth(campaign.steps)
    campaign.relaunches = relaunched(campaign, resumption.interrupted, step=resumption.iteration + 1)
    campaign.steps_before = resumption.iteration
    evaluated = run.metrics("eval").index
    if resumption.iteration not in evaluated:
        await _evaluate_if_due(campaign, resumption.iteration)
    return resumption.first, version, resumption.iteration + 1, resumption.pending


async def _evaluate_if_due(campaign: Campaign, iteration: int) -> None:
    every = campaign.config.evaluation.every
    if campaign.is_evaluated and every and iteration % every == 0 and iteration < campaign.config.num_steps:
        await evaluate(campaign, step=iteration, when=f"after step {iteration}")


async def _both_sides(
    campaign: Campaign, iteration: int, version: int, pending: Collected | None, clock: StepClock
) -> tuple[Collected | None, TrainResult | None]:
    """Collect batch `iteration` and train on `pending`, at the same time. If one side fails, the other is ended."""
    async with asyncio.TaskGroup() as group:
        collecting = training = None
        if iteration < campaign.config.num_steps:
            collecting = group.create_task(collect(campaign, iteration, version, clock))
        if pending is not None:
            training = group.create_task(_train(campaign, pending, version, clock))
    return (collecting.result() if collecting else None), (training.result() if training else None)


async def _train(campaign: Campaign, pending: Collected, version: int, clock: StepClock) -> TrainResult:
    num_critic_only_steps = campaign.config.train.num_critic_only_steps
    lag = expected_staleness(pending.step, num_critic_only_steps=num_critic_only_steps)
    assert version - pending.version == lag, (
        f"step {pending.step}: sampled by version {pending.version}, trained at version {version}, expected lag {lag}"
    )
    max_staleness = campaign.config.rollout.max_staleness
    with clock.phase("train"):
        return await campaign.crew.train(
            pending.batch,
            update_actor=pending.step >= num_critic_only_steps,
            expected_version_lag=lag,
            max_version_lag=max_staleness if max_staleness > 1 else None,
        )


async def _record(
    campaign: Campaign, pending: Collected, result: TrainResult, clock: StepClock, *, beside: Collected | None
) -> None:
    """Write what is known of batch `pending`; time and CPU are of this iteration, in which `beside` was collected."""
    run, crew = campaign.run, campaign.crew
    metrics = pending.metrics | result.metrics
    metrics |= {f"time/{phase}_s": seconds for phase, seconds in result.timings_s.items()}
    metrics |= clock.metrics(await crew.cpu_s())
    if beside is not None:
        metrics["cpu/grade_s"] = beside.grade_cpu_s
    metrics |= {f"memory/{part}_mb": size for part, size in (await crew.memory_mb()).items()}
    metrics |= _watch_turns(campaign, metrics)
    run.record_tokens(
        pending.batch,
        per_token=result.per_token,
        spans=pending.spans,
        pack_routes=campaign.config.pack_routes,
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
    here = max(done - campaign.steps_before, 1)
    left = (time.monotonic() - campaign.loop_started) / here * (total - done) + campaign.evaluation_s
    if metrics["train/skipped"]:
        return f"step {done:3d}/{total}  no optimiser step: the batch holds no trainable token"
    judged = (
        f"flat groups {metrics['reward/zero_variance_group_frac']:.0%}"
        if campaign.config.train.advantage == "grpo"
        else f"EV {metrics['critic/explained_variance']:+.2f}"
    )
    return (
        f"step {done:3d}/{total}  reward {metrics['reward/mean']:.3f}  solved {metrics['reward/solved_frac']:5.1%}  "
        f"{judged}  gap {metrics['logprob_gap/abs_mean']:.4f}  "
        f"{metrics['time/step_s']:5.1f} s/step  {left / 60:4.1f} min left"
    )
