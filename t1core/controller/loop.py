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
`rollout.max_staleness` versions old then. `rollout.mode=async` does without the barrier (`async_loop`), `sync` without
the two sides: a batch is trained before the next is collected. With `rollout.publish_every` above 1 the engine keeps
its weights over so many updates of the actor.
"""

import asyncio
import time
from pathlib import Path

from t1core.analysis.turn_growth import turn_growth
from t1core.controller.async_loop import run_without_barrier
from t1core.controller.campaign import Campaign
from t1core.controller.check import expected_staleness, weight_version
from t1core.controller.checkpointing import Resumption, relaunched, save_checkpoint
from t1core.controller.collect import Collected, collect
from t1core.controller.evaluate import evaluate, evaluate_if_due
from t1core.controller.measure import StepClock
from t1core.controller.recording import record_step
from t1core.rollout.skim import end_trials
from t1core.train.result import TrainResult


async def run_loop(campaign: Campaign, resumption: Resumption | None = None) -> None:
    """Run the campaign from its first step, or from a resumption, to its last."""
    config = campaign.config
    try:
        if resumption is None:
            start, waiting = await _begin(campaign), []
        else:
            start, waiting = await _go_on(campaign, resumption)
        if config.rollout.mode == "async":
            await run_without_barrier(campaign, start=start, waiting=waiting)
        elif config.rollout.mode == "sync":
            assert not waiting, "no batch waits in sync mode"
            await _run_in_turn(campaign, start=start)
        else:
            assert len(waiting) <= 1, "one batch is in flight in one-step mode"
            await _run_steps(campaign, start=start, pending=waiting[0] if waiting else None)
    finally:
        await end_trials(campaign.carried, cut=campaign.crew.cut, within_s=config.cluster.control_deadline_s)
    for role in ("actor", "critic") if config.train.advantage == "gae" else ("actor",):
        await campaign.crew.save_weights(campaign.run.folder("checkpoints") / "final" / role, role)
    if campaign.is_evaluated:
        await evaluate(campaign, step=config.num_steps, when="after training")


async def _begin(campaign: Campaign) -> int:
    """Publish what training starts from, and evaluate it."""
    config, crew = campaign.config, campaign.crew
    # A restored actor is published before anything is sampled: the engine was started from other weights.
    if config.train.load:
        campaign.first = await crew.load_checkpoint(Path(config.train.load).resolve())
    await campaign.publish(campaign.first, frozen=False)
    if campaign.is_evaluated:
        await evaluate(campaign, step=0, when="before training")
    campaign.loop_started = time.monotonic()
    return 0


async def _go_on(campaign: Campaign, resumption: Resumption) -> tuple[int, list[Collected]]:
    """Bring every part where the resumption was: the next iteration, and the batches that wait to be trained on."""
    run = campaign.run
    version = await campaign.crew.load_checkpoint(resumption.networks)
    assert version == resumption.version, (
        f"{resumption.networks} restores version {version}, the loop beside it was at {resumption.version}"
    )
    campaign.first = resumption.first
    await campaign.publish(version, frozen=False)
    campaign.position = resumption.position
    campaign.evaluation_s = resumption.evaluation_s
    campaign.estimates, campaign.survival = resumption.estimates, resumption.survival
    campaign.steps = run.metrics("train").to_dict("records")
    campaign.growth = turn_growth(campaign.steps)
    campaign.relaunches = relaunched(campaign, resumption.interrupted, step=resumption.iteration + 1)
    campaign.steps_before = resumption.iteration
    if resumption.iteration not in run.metrics("eval").index:
        await evaluate_if_due(campaign, resumption.iteration)
    campaign.loop_started = time.monotonic()
    return resumption.iteration + 1, list(resumption.waiting)


async def _run_steps(campaign: Campaign, *, start: int, pending: Collected | None) -> None:
    config, crew = campaign.config, campaign.crew
    for iteration in range(start, config.num_steps + 1):
        clock = StepClock(await crew.cpu_s())
        collected, result = await _both_sides(campaign, iteration, pending, clock)
        with clock.phase("barrier"):
            is_last = iteration == config.num_steps
            trained = campaign.first + weight_version(
                iteration,
                num_critic_only_steps=config.train.num_critic_only_steps,
                publish_every=1 if is_last else config.rollout.publish_every,
            )
            if trained != campaign.version:
                clock.publication = await campaign.publish(trained, frozen=bool(campaign.carried))
        if pending is not None and result is not None:
            await record_step(campaign, pending, result, clock, beside=collected)
            if config.checkpoint_every and iteration % config.checkpoint_every == 0:
                waiting = [] if collected is None else [collected]
                await save_checkpoint(campaign, iteration=iteration, waiting=waiting)
            await evaluate_if_due(campaign, iteration)
        pending = collected


async def _run_in_turn(campaign: Campaign, *, start: int) -> None:
    """Collect a batch, train on it, publish: no batch is older than the weights that it moves."""
    config = campaign.config
    for step in range(max(start - 1, 0), config.num_steps):
        clock = StepClock(await campaign.crew.cpu_s())
        collected = await collect(campaign, step)
        result = await _train(campaign, collected, clock)
        with clock.phase("barrier"):
            trained = campaign.first + weight_version(
                step + 1, num_critic_only_steps=config.train.num_critic_only_steps
            )
            if trained != campaign.version:
                clock.publication = await campaign.publish(trained, frozen=False)
        await record_step(campaign, collected, result, clock, beside=collected)
        iteration = step + 1
        if config.checkpoint_every and iteration % config.checkpoint_every == 0:
            await save_checkpoint(campaign, iteration=iteration, waiting=[])
        await evaluate_if_due(campaign, iteration)


async def _both_sides(
    campaign: Campaign, iteration: int, pending: Collected | None, clock: StepClock
) -> tuple[Collected | None, TrainResult | None]:
    """Collect batch `iteration` and train on `pending`, at the same time. If one side fails, the other is ended."""
    async with asyncio.TaskGroup() as group:
        collecting = training = None
        if iteration < campaign.config.num_steps:
            collecting = group.create_task(collect(campaign, iteration))
        if pending is not None:
            training = group.create_task(_train(campaign, pending, clock))
    return (collecting.result() if collecting else None), (training.result() if training else None)


async def _train(campaign: Campaign, pending: Collected, clock: StepClock) -> TrainResult:
    version, num_critic_only_steps = campaign.version, campaign.config.train.num_critic_only_steps
    rollout = campaign.config.rollout
    lag = 0
    if rollout.mode == "one_step":
        lag = expected_staleness(
            pending.step, num_critic_only_steps=num_critic_only_steps, publish_every=rollout.publish_every
        )
    assert version - pending.version == lag, (
        f"step {pending.step}: sampled by version {pending.version}, trained at version {version}, expected lag {lag}"
    )
    max_staleness = rollout.max_staleness
    with clock.phase("train"):
        return await campaign.crew.train(
            pending.batch,
            update_actor=pending.step >= num_critic_only_steps,
            expected_version_lag=lag,
            max_version_lag=max_staleness if max_staleness > 1 else None,
        )
