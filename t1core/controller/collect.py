"""The rollout side of a step: launch, keep the first K, and make the batch of them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from t1core.analysis.survival import Survivor, cell_rows
from t1core.controller.campaign import Campaign
from t1core.controller.check import check_batch, sampled_versions, weight_version
from t1core.controller.measure import measure_rollout
from t1core.controller.rewarding import source_line, training_rewards
from t1core.controller.schedule import draw_tasks, schedule_metrics, step_specs
from t1core.records import Batch, TurnSpan
from t1core.rollout.skim import StepRollout, skim


@dataclass(frozen=True)
class Collected:
    """A step's batch, waiting to be trained on, and what is known of it. `version`: what the engine held as the step
    was whole. `spans` are the rows' turn spans, `metrics` the rollout's; `grade_cpu_s` went into grading its
    trials, `rollout_s` is wall time."""

    step: int
    version: int
    batch: Batch
    spans: Sequence[Sequence[TurnSpan]]
    metrics: dict[str, float]
    grade_cpu_s: float
    rollout_s: float


async def collect(campaign: Campaign, step: int) -> Collected:
    """Collect batch `step`. Trials that go on are left in `campaign.carried`.

    Raises RuntimeError when too few of its trials are usable.
    """
    began = time.monotonic()
    settings = campaign.config.rollout
    is_last = step == campaign.config.num_steps - 1
    trained_at = campaign.first + weight_version(
        step,
        num_critic_only_steps=campaign.config.train.num_critic_only_steps,
        publish_every=settings.publish_every,
    )
    carried, again = campaign.begin_collecting()
    size = settings.samples_per_task
    count = (settings.over_sampling_batch_size - len(carried) - len(again)) // size
    estimates = campaign.estimates
    draw = draw_tasks(
        campaign.config,
        campaign.pool,
        start=campaign.position,
        count=max(count, 0),
        estimates=estimates,
    )
    campaign.position = draw.position
    specs = step_specs(campaign.config, draw.tasks, step=step, estimates=estimates)
    scheduled = schedule_metrics(draw, specs, estimates=estimates)
    stale = {trial.spec.trial_id for trial in carried if trial.version < trained_at - settings.max_staleness}
    rollout = await skim(
        [*again, *specs],
        launch=campaign.crew.launch,
        cut=campaign.crew.cut,
        accept=settings.rollout_batch_size,
        max_live=settings.max_live_trials * campaign.config.cluster.num_hosts,
        group_size=size,
        tail="cut" if is_last and settings.tail == "continue" else settings.tail,
        in_launch_order=settings.deterministic,
        max_retries=settings.max_retries,
        cleanup_deadline_s=campaign.config.cluster.control_deadline_s,
        step=step,
        version=lambda: campaign.version,
        carried=carried,
        stale=stale,
    )
    rollout_s = time.monotonic() - began
    campaign.end_collecting(rollout.continued)
    campaign.run.record_trajectories(
        [result.trajectory for result in rollout.results()], step=step, outcomes=rollout.outcomes()
    )
    if len(rollout.accepted) < settings.min_accepted_frac * settings.rollout_batch_size:
        reasons = {str(item.trajectory.failure) for item in rollout.failed} or {"every trial was held back"}
        raise RuntimeError(
            f"step {step}: {len(rollout.accepted)} of {rollout.launched} trials are usable, below "
            f"rollout.min_accepted_frac={settings.min_accepted_frac} of a batch: {'; '.join(sorted(reasons))[:800]}"
        )
    batch = _batch(campaign, rollout, step=step)
    version = campaign.version
    is_reencoded = settings.token_fidelity == "reencoded"
    check_batch(
        batch,
        rollout.accepted,
        versions=sampled_versions(version, trained_at=trained_at, max_staleness=settings.max_staleness),
        is_reencoded=is_reencoded,
    )
    return Collected(
        step=step,
        version=version,
        batch=batch,
        spans=[row.spans for item in rollout.accepted for row in item.rows],
        metrics=measure_rollout(rollout, batch, is_reencoded=is_reencoded)
        | scheduled
        | _learn(campaign, rollout, step=step),
        grade_cpu_s=sum(item.trajectory.cpu_s["grade"] for item in rollout.results()),
        rollout_s=rollout_s,
    )


def _batch(campaign: Campaign, rollout: StepRollout, *, step: int) -> Batch:
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
    is_grouped = campaign.config.rollout.samples_per_task > 1
    groups = [rollout.groups[t.trial_id] for t in of_row] if is_grouped else None
    return Batch.from_rows(rows, step=step, num_tests=[t.num_tests for t in of_row], groups=groups)


def _learn(campaign: Campaign, rollout: StepRollout, *, step: int) -> dict[str, float]:
    """Take in what the step tells of tasks and of its own selection, and keep the table of that."""
    ended = sorted(rollout.results(), key=lambda item: item.trajectory.trial_id)
    cells, metrics = campaign.survival.observe(survivors(rollout))
    campaign.run.record_survival(cell_rows(cells), step=step)
    for item in ended:
        campaign.estimates.observe(item.trajectory)
    return metrics


def survivors(rollout: StepRollout) -> list[Survivor]:
    """The trials that the skim chose among: those that could have been kept, and those that go on. What broke or was
    held back says nothing about speed."""
    fates = {"accepted": "kept", "surplus": "surplus", "cut": "cut"}
    chosen = [
        Survivor(
            trial_id=item.trajectory.trial_id,
            family=item.trajectory.family,
            predicted_s=item.trajectory.timings_s.get("predicted"),
            fate=fates[outcome],
            reward=item.trajectory.reward,
        )
        for outcome, items in rollout.by_outcome().items()
        if outcome in fates
        for item in items
    ]
    going_on = [
        Survivor(trial.spec.trial_id, trial.spec.task.family, trial.spec.predicted_s, "continued")
        for trial in rollout.continued
    ]
    return sorted([*chosen, *going_on], key=lambda trial: trial.trial_id)
