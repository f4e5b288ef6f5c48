"""Held-out evaluation: every task asked for is accounted for, or the result is not recorded as complete."""

import time

import numpy as np

from t1core.controller.campaign import Campaign
from t1core.controller.schedule import evaluation_specs
from t1core.rollout.skim import skim

SPLITS = ("heldout", "heldout_family")


async def evaluate(campaign: Campaign, *, step: int, when: str) -> None:
    """Run one trial on each held-out task of the splits that the pool has, and record eval/* at `step`.

    Raises RuntimeError when tasks are missing; the trials that ran are recorded all the same.
    """
    config, crew, run = campaign.config, campaign.crew, campaign.run
    run.update_status(phase=f"evaluating {when}")
    began = time.monotonic()
    metrics: dict[str, float] = {}
    trajectories, missing = [], []
    splits = [split for split in SPLITS if split in campaign.pool.splits]
    if not splits:
        return
    for split in splits:
        tasks = campaign.pool.tasks(split)[: config.evaluation.tasks_per_split]
        specs = evaluation_specs(config, tasks, step=step, split=split)
        rollout = await skim(
            specs,
            launch=crew.launch,
            cut=crew.cut,
            accept=len(specs),
            max_live=max(1, config.rollout.max_live_trials - len(campaign.carried)),
            tail="wait",
            max_retries=max(config.rollout.max_retries, 2),
            cleanup_deadline_s=config.cluster.control_deadline_s,
        )
        trajectories += [item.trajectory for item in rollout.results()]
        finished = [item.trajectory for item in (*rollout.accepted, *rollout.quarantined, *rollout.empty)]
        grades = [trajectory.grade for trajectory in finished if trajectory.grade is not None]
        if len(grades) != len(specs):
            failures = sorted({str(item.trajectory.failure) for item in rollout.failed})
            missing.append(
                f"{len(specs)} {split} tasks asked, {len(grades)} graded: {'; '.join(failures)[:600]}"
            )
            continue
        metrics |= {
            f"eval/{split}/solved_frac": float(np.mean([grade.solved for grade in grades])),
            f"eval/{split}/reward_mean": float(np.mean([grade.reward for grade in grades])),
            f"eval/{split}/passed_frac": float(np.mean([grade.passed / grade.total for grade in grades])),
            f"eval/{split}/count": float(len(grades)),
        }
    metrics["time/evaluate_s"] = campaign.evaluation_s = time.monotonic() - began
    run.record_trajectories(trajectories, step=step, kind="eval")
    if missing:
        raise RuntimeError(
            f"evaluation {when} is incomplete and not recorded as a result: {'; '.join(missing)}"
        )
    run.record_metrics(metrics, step=step, kind="eval")
    solved = "  ".join(f"{split} {metrics[f'eval/{split}/solved_frac']:.1%}" for split in splits)
    run.update_status(phase=f"evaluated {when}")
    campaign.say(f"held out, solved {when}: {solved}  ({metrics['time/evaluate_s']:.0f} s)")
