"""Which tasks a step launches: a seeded walk through the epochs, a pure function of the seed and the step."""

import numpy as np

from t1core.config import CampaignConfig
from t1core.records import Task
from t1core.rollout.trial import TrialSpec
from t1core.tasks.pool import Pool


def step_specs(config: CampaignConfig, pool: Pool, *, step: int) -> list[TrialSpec]:
    """The trials of a step, `over_sampling_batch_size` of them, `samples_per_task` of each task side by side; epochs
    follow on one another without a gap.
    """
    size = config.rollout.samples_per_task
    count = config.rollout.over_sampling_batch_size // size
    tasks = pool.stretch(
        "train", seed=config.seed, start=step * count, count=count, shuffle=config.tasks.shuffle
    )
    return [
        TrialSpec(
            trial_id=f"s{step:04d}-{i:03d}",
            task=tasks[i // size],
            step=step,
            attempt=0,
            sampling_seed=trial_seed(config.seed, step, i),
            temperature=config.rollout.temperature,
            group=i // size if size > 1 else None,
        )
        for i in range(count * size)
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
