"""What is recorded of a step, and said of it."""

import time

from t1core.analysis.turn_growth import turn_growth
from t1core.controller.campaign import Campaign
from t1core.controller.check import weight_version
from t1core.controller.collect import Collected
from t1core.controller.measure import StepClock
from t1core.train.result import TrainResult


async def record_step(
    campaign: Campaign, pending: Collected, result: TrainResult, clock: StepClock, *, beside: Collected | None
) -> None:
    """Write what is known of batch `pending`; time and CPU are of this iteration, in which `beside` was collected."""
    run, crew = campaign.run, campaign.crew
    metrics = pending.metrics | result.metrics
    metrics |= {f"time/{phase}_s": seconds for phase, seconds in result.timings_s.items()}
    metrics |= clock.metrics(await crew.cpu_s())
    if beside is not None:
        metrics |= {"cpu/grade_s": beside.grade_cpu_s, "time/rollout_s": beside.rollout_s}
    metrics |= {f"memory/{part}_mb": size for part, size in (await crew.memory_mb()).items()}
    metrics["staleness/updates"] = _staleness_in_updates(campaign, pending)
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


def _staleness_in_updates(campaign: Campaign, pending: Collected) -> float:
    """Updates of the actor between the sampling of a batch's trained tokens and its own, mean: versions count updates,
    and the actor may be ahead of the newest that was published."""
    batch = pending.batch
    made = campaign.first + weight_version(
        pending.step, num_critic_only_steps=campaign.config.train.num_critic_only_steps
    )
    sampled = batch.weight_versions[batch.loss_mask.astype(bool)]
    return float(made - sampled.mean()) if len(sampled) else float("nan")


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
    if metrics.get("actor/skipped"):
        is_flat = metrics.get("reward/zero_variance_group_frac") == 1
        why = "every group is flat" if is_flat else "no token has a weight"
        judged += f"  no actor step: {why}"
    return (
        f"step {done:3d}/{total}  reward {metrics['reward/mean']:.3f}  solved {metrics['reward/solved_frac']:5.1%}  "
        f"{judged}  gap {metrics['logprob_gap/abs_mean']:.4f}  "
        f"{metrics['time/step_s']:5.1f} s/step  {left / 60:4.1f} min left"
    )
