"""Whether a pool's verifiers answer: the tests of a sample of its tasks, run on their untouched workspaces.

A verifier that cannot run gives every trial a reward of 0, which looks like a hard pool. T1 tried 60 tasks before each
campaign, and a report came from 56.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from t1core.pools.verdict import one_line
from t1core.records import RewardSource, Task
from t1core.sandbox.sandbox import BoxBroken, BoxDied, BoxTimeout, Sandbox
from t1core.tasks.pool import Pool
from t1core.verifier.attacks.battery import Bench
from t1core.verifier.grader import Grader


@dataclass(frozen=True)
class Answers:
    """What came of the sampled tasks: how many `reported` tests, how many scripts `declared` a number instead, which
    were `silent` and why, by task id, and which the untouched workspace solves."""

    num_sampled: int
    num_reported: int
    num_declared: int
    silent: Mapping[str, str]
    solved_untouched: tuple[str, ...]


async def ask_verifiers(
    pool: Pool,
    *,
    split: str,
    number: int,
    seed: int,
    sandbox: Sandbox,
    grader: Grader,
    limits: Mapping[str, int],
    num_parallel: int,
) -> Answers:
    """Grade the untouched workspaces of `number` tasks of a split, or of all where it has fewer, drawn by the seed.

    `limits` are a box's memory_mb, storage_mb and max_processes. Raises SandboxUnavailable for what this machine lacks.
    """
    entries = pool.split(split)
    places = np.random.default_rng([seed, len(entries)]).permutation(len(entries))[:number]
    tasks = [pool.task(entries[place]) for place in sorted(places.tolist())]
    turns = asyncio.Semaphore(num_parallel)

    async def ask(task: Task) -> tuple[RewardSource, bool, str]:
        async with turns:
            try:
                grade = await Bench(task, sandbox=sandbox, grader=grader, limits=limits).grade("true")
            except (ValueError, BoxDied, BoxBroken, BoxTimeout) as error:
                return RewardSource.NONE, False, one_line(f"{type(error).__name__}: {error}", 160)
        return grade.source, grade.solved, one_line(", ".join(grade.flags), 160)

    answers = list(zip(tasks, await asyncio.gather(*map(ask, tasks)), strict=True))
    sources = [source for _, (source, _, _) in answers]
    return Answers(
        num_sampled=len(tasks),
        num_reported=sources.count(RewardSource.CTRF),
        num_declared=sources.count(RewardSource.BINARY),
        silent={
            task.task_id: why
            for task, (source, _, why) in answers
            if source in (RewardSource.NO_REPORT, RewardSource.NONE)
        },
        solved_untouched=tuple(task.task_id for task, (_, solved, _) in answers if solved),
    )
