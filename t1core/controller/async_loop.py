"""The loop without a barrier: batches are collected one after another while others are trained on.

    collector: batch k, k+1, ... --> waiting --> trainer: batch k, publication, batch k+1, ...
         ^ may begin batch k once k - (batches trained) <= max_staleness ------'

A publication freezes what generates, brings the new weights and lets it go on: trials, boxes and half-sampled answers
survive it. The capacity is then computed anew. A trial that batch k accepts was launched when at most `max_staleness`
batches were untrained before it, or is cut as that batch begins; so no token is trained more than `max_staleness`
versions after it was sampled, which is asserted of every batch, here and in the trainer. Each token is trained against
the snapshot of the version that sampled it. A frozen request goes on with the state of the old weights; whatever comes
after it starts from the new ones, since no kept state outlives the weights that made it.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from t1core.controller.campaign import Campaign
from t1core.controller.check import weight_version
from t1core.controller.checkpointing import save_checkpoint
from t1core.controller.collect import Collected, collect
from t1core.controller.evaluate import evaluate_if_due
from t1core.controller.measure import StepClock
from t1core.controller.recording import record_step


@dataclass
class Flow:
    """Batches between the two sides. `num_trained` counts those that are through."""

    num_trained: int
    max_staleness: int
    waiting: deque[Collected] = field(default_factory=deque)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def may_begin(self, step: int) -> bool:
        """Whether batch `step` may be collected now: it is trained when so many more batches are."""
        return step - self.num_trained <= self.max_staleness

    async def until_room(self, step: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.may_begin(step))

    async def put(self, collected: Collected) -> None:
        self.waiting.append(collected)
        async with self.changed:
            self.changed.notify_all()

    async def first(self) -> Collected:
        """The batch to train on next, once it is there."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.waiting)
        return self.waiting.popleft()

    async def trained(self) -> None:
        self.num_trained += 1
        async with self.changed:
            self.changed.notify_all()


async def run_without_barrier(campaign: Campaign, *, start: int, waiting: list[Collected]) -> None:
    """Collect and train from iteration `start` on, with batches that wait already. If one side fails, the other is
    ended."""
    trained = max(start - 1, 0)
    flow = Flow(trained, campaign.config.rollout.max_staleness, waiting=deque(waiting))
    async with asyncio.TaskGroup() as group:
        group.create_task(_collect_all(campaign, flow, first=trained + len(waiting)))
        group.create_task(_train_all(campaign, flow, first=trained))


async def _collect_all(campaign: Campaign, flow: Flow, *, first: int) -> None:
    for step in range(first, campaign.config.num_steps):
        await flow.until_room(step)
        await flow.put(await collect(campaign, step))


async def _train_all(campaign: Campaign, flow: Flow, *, first: int) -> None:
    config, crew = campaign.config, campaign.crew
    for step in range(first, config.num_steps):
        clock = StepClock(await crew.cpu_s())
        with clock.phase("wait"):
            pending = await flow.first()
        assert pending.step == step, f"batch {pending.step} came where {step} was expected"
        is_critic_only = step < config.train.num_critic_only_steps
        with clock.phase("train"):
            result = await crew.train(
                pending.batch,
                update_actor=not is_critic_only,
                expected_version_lag=0,
                max_version_lag=flow.max_staleness,
            )
        with clock.phase("barrier"):
            version = campaign.first + weight_version(
                step + 1, num_critic_only_steps=config.train.num_critic_only_steps
            )
            if version != campaign.version:
                clock.publication = await campaign.publish(version, frozen=True)
        await flow.trained()
        await record_step(campaign, pending, result, clock, beside=pending)
        iteration = step + 1
        if config.checkpoint_every and iteration % config.checkpoint_every == 0:
            await save_checkpoint(campaign, iteration=iteration, waiting=list(flow.waiting))
        await evaluate_if_due(campaign, iteration)
