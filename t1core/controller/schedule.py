"""Which tasks a step launches: a seeded walk through the epochs, a pure function of the seed and the position."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from t1core.config import CampaignConfig
from t1core.records import Task
from t1core.rollout.estimates import TaskEstimates
from t1core.rollout.trial import TrialSpec
from t1core.tasks.order import draws
from t1core.tasks.pool import Pool


@dataclass(frozen=True)
class Draw:
    """Tasks to launch, in the order of the walk; the position after them; and the families and uncertainties of all
    that were walked past, launched or not."""

    tasks: Sequence[Task]
    position: int
    walked_families: tuple[str, ...]
    walked_uncertainties: tuple[float, ...]


def draw_tasks(
    config: CampaignConfig, pool: Pool, *, start: int, count: int, estimates: TaskEstimates
) -> Draw:
    """The next `count` tasks of the sequence of epochs from position `start` on."""
    if not config.schedule.by_difficulty:
        tasks = pool.stretch(
            "train", seed=config.seed, start=start, count=count, shuffle=config.tasks.shuffle
        )
        return Draw(
            tasks,
            start + count,
            tuple(task.family for task in tasks),
            tuple(estimates.uncertainty(task.task_id) for task in tasks),
        )
    entries, floor = pool.split("train"), config.schedule.weight_floor
    position, chosen, walked = start, [], []
    while len(chosen) < count:
        (index,) = draws(
            len(entries), seed=config.seed, start=position, number=1, shuffle=config.tasks.shuffle
        )
        entry = entries[index]
        walked.append((entry.family, estimates.uncertainty(entry.task_id)))
        if _chance(config.seed, position) < (floor + walked[-1][1]) / (floor + 1.0):
            chosen.append(pool.task(entry))
        position += 1
    families, uncertainties = zip(*walked, strict=True) if walked else ((), ())
    return Draw(chosen, position, families, uncertainties)


def schedule_metrics(draw: Draw, specs: Sequence[TrialSpec], *, estimates: TaskEstimates) -> dict[str, float]:
    """schedule/*: how what is launched differs from a plain walk through the epoch."""
    if not draw.tasks:
        return {}
    launched, walked = Counter(task.family for task in draw.tasks), Counter(draw.walked_families)
    shares = {f: launched[f] / launched.total() - n / walked.total() for f, n in walked.items()}
    places = [spec.trial_id for spec in specs]
    moved = sum(a != b for a, b in zip(places, sorted(places), strict=True))
    return {
        "schedule/passed_over": float(len(draw.walked_families) - len(draw.tasks)),
        "schedule/family_distance": sum(map(abs, shares.values())) / 2,
        "schedule/uncertainty_mean": float(
            np.mean([estimates.uncertainty(task.task_id) for task in draw.tasks])
        ),
        "schedule/uncertainty_walked_mean": float(np.mean(draw.walked_uncertainties)),
        "schedule/moved_frac": moved / len(places),
    }


def step_specs(
    config: CampaignConfig, tasks: Sequence[Task], *, step: int, estimates: TaskEstimates
) -> list[TrialSpec]:
    """The trials of a step in the order of their launch, `samples_per_task` of each task side by side."""
    size = config.rollout.samples_per_task
    places = list(range(len(tasks)))
    predicted = [estimates.predicted_s(task) for task in tasks]
    if config.schedule.longest_first:
        places.sort(key=lambda place: -(math.inf if predicted[place] is None else predicted[place]))
    return [
        TrialSpec(
            trial_id=f"s{step:04d}-{i:03d}",
            task=tasks[place],
            step=step,
            attempt=0,
            sampling_seed=trial_seed(config.seed, step, i),
            temperature=config.rollout.temperature,
            group=place if size > 1 else None,
            predicted_s=predicted[place],
        )
        for place in places
        for i in range(place * size, (place + 1) * size)
    ]


def _chance(seed: int, position: int) -> float:
    """A number in [0, 1) for each position of the walk."""
    return float(np.random.default_rng([seed, 1, position]).random())


def evaluation_specs(
    config: CampaignConfig, tasks: Sequence[Task], *, step: int, split: str
) -> list[TrialSpec]:
    """The attempts at each task; the same seeds at every evaluation, so that comparisons are paired."""
    settings = config.evaluation
    return [
        TrialSpec(
            trial_id=f"e{step:04d}-{split}-{i:03d}" + (f"-{attempt}" if attempt else ""),
            task=task,
            step=step,
            attempt=0,
            sampling_seed=trial_seed(config.seed, -1, i, attempt),
            temperature=settings.temperature,
            is_evaluation=True,
            top_p=settings.top_p,
            top_k=settings.top_k,
        )
        for attempt in range(settings.attempts)
        for i, task in enumerate(tasks)
    ]


def trial_seed(seed: int, step: int, index: int, attempt: int = 0) -> int:
    """A 63-bit seed for one trial."""
    entropy = [seed, step + 1, index, attempt] if attempt else [seed, step + 1, index]
    words = np.random.SeedSequence(entropy).generate_state(2, np.uint32)
    return int(words[0]) << 31 | int(words[1]) >> 1
