"""Which tasks a step launches: a seeded walk through the epochs, a pure function of the seed and the position."""

from collections.abc import Sequence

import numpy as np

from t1core.config import CampaignConfig
from t1core.records import Task
from t1core.rollout.estimates import TaskEstimates
from t1core.rollout.trial import TrialSpec
from t1core.tasks.pool import Pool


def draw_tasks(config: CampaignConfig, pool: Pool, *, start: int, count: int) -> tuple[Sequence[Task], int]:
    """The next `count` tasks of the sequence of epochs from position `start` on; and the position after them."""
    tasks = pool.stretch("train", seed=config.seed, start=start, count=count, shuffle=config.tasks.shuffle)
    return tasks, start + count


def step_specs(
    config: CampaignConfig, tasks: Sequence[Task], *, step: int, estimates: TaskEstimates
) -> list[TrialSpec]:
    """The trials of a step, `samples_per_task` of each task side by side."""
    size = config.rollout.samples_per_task
    return [
        TrialSpec(
            trial_id=f"s{step:04d}-{i:03d}",
            task=tasks[i // size],
            step=step,
            attempt=0,
            sampling_seed=trial_seed(config.seed, step, i),
            temperature=config.rollout.temperature,
            group=i // size if size > 1 else None,
            predicted_s=estimates.predicted_s(tasks[i // size]),
        )
        for i in range(len(tasks) * size)
    ]


def evaluation_specs(config: CampaignConfig, tasks: list[Task], *, step: int, split: str) -> list[TrialSpec]:
    """One trial a held-out task; the same seeds at every evaluation, so that comparisons are paired."""
    return [
        TrialSpec(
            trial_id=f"e{step:04d}-{split}-{i:03d}",
            task=task,
            step=step,
            attempt=0,
            sampling_seed=trial_seed(config.seed, -1, i),
            temperature=config.evaluation.temperature,
        )
        for i, task in enumerate(tasks)
    ]


def trial_seed(seed: int, step: int, index: int) -> int:
    """A 63-bit seed for one trial."""
    words = np.random.SeedSequence([seed, step + 1, index]).generate_state(2, np.uint32)
    return int(words[0]) << 31 | int(words[1]) >> 1
