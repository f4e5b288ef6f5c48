"""Half a campaign: rollout without training, which only stores, and training without rollout, on what was stored.

    rollout   model, pool -> the rollout side of each step, as a campaign has it -> a run with trials and tokens
    train     run -> its stored batches in order -> the train side of each step, as a campaign has it -> weights

Trained with a campaign's own settings, from what it began with, its stored batches give the weights that it ended with.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from t1core.campaign.campaign import closing, in_order
from t1core.campaign.preflight import check_budgets, check_machine, check_plan
from t1core.campaign.pretraining import alone_unless_launched
from t1core.campaign.run_name import new_run_name
from t1core.config import CampaignConfig
from t1core.controller import Campaign
from t1core.controller.check import expected_staleness, weight_version
from t1core.controller.collect import collect
from t1core.records import Batch
from t1core.rollout.trial import TrialResult, TrialSpec
from t1core.store import Run, RunState, collect_provenance
from t1core.tasks.pool import Pool

Say = Callable[[str], None]


@dataclass(frozen=True)
class _Host:
    """The part of a crew that a rollout needs: a trial host in this process."""

    launch: Callable[[TrialSpec], Awaitable[TrialResult]]
    cut: Callable[[list[str]], Awaitable[None]]


def roll_out(config: CampaignConfig, model: Path, *, pool: Path, say: Say = print) -> Run:
    """Collect `num_steps` batches with one policy (a Hugging Face directory) and store them; nothing is trained.

    Raises ValueError for a plan that this machine or pool can't carry, KeyboardInterrupt when interrupted.
    """
    check_machine(config)
    opened = Pool.open(pool)
    check_plan(config, opened, say=say)
    check_budgets(config, opened, actor=model, say=say)
    run = _new_run(config, num_steps=config.num_steps)
    with closing(run, say) as log:
        log(f"run directory: {run.path}")
        for line in config.experiments:
            log(f"EXPERIMENT: {line}")
        asyncio.run(_roll_out(config, model, in_order(opened, config), run, log))
    return Run.open(run.path)


def _new_run(config: CampaignConfig, *, num_steps: int) -> Run:
    return Run.create(
        config.run_root,
        campaign=config.name,
        run_name=new_run_name(config),
        config=config.model_dump(mode="json"),
        provenance=collect_provenance(),
        num_steps=num_steps,
    )


async def _roll_out(config: CampaignConfig, model: Path, pool: Pool, run: Run, log: Say) -> None:
    # Heavy libraries only once the plan has been found sound.
    from t1core.agent.tokenizer import ChatTokenizer
    from t1core.cluster.engines import start_engine
    from t1core.cluster.hosting import make_runner
    from t1core.model.shape import ModelShape

    tokenizer = ChatTokenizer.load(model)
    run.record_vocabulary([tokenizer.decode_token(token) for token in range(tokenizer.vocab_size)])
    shape = ModelShape.from_hf(model)
    engine = await start_engine(config, model=model, name="the engine", log_file=run.logs / "engine_0.log")
    settings = {
        "config": config.model_dump(mode="json"),
        "model_path": str(model),
        "num_experts": shape.num_experts,
        "vocab_size": shape.vocab_size,
        "engine_name": "the engine",
    }
    try:
        runner, sandbox, grader = await make_runner(settings, engine)
        try:
            host = _Host(launch=runner.run, cut=runner.cut)
            campaign = Campaign(config=config, crew=host, run=run, pool=pool, say=log)  # type: ignore[arg-type]
            for step in range(config.num_steps):
                run.update_status(state=RunState.RUNNING, phase=f"step {step + 1}")
                collected = await collect(campaign, step)
                run.record_tokens(collected.batch, per_token={}, spans=collected.spans)
                run.record_metrics(collected.metrics, step=step)
                log(
                    f"step {step + 1}/{config.num_steps}  reward {collected.metrics['reward/mean']:.3f}  "
                    f"{len(collected.batch)} rows, {collected.rollout_s:.1f} s"
                )
        finally:
            await grader.close()
            await sandbox.close()
    finally:
        await engine.close()


def train_stored(
    config: CampaignConfig, stored: Run, *, actor: Path, critic: Path | None, say: Say = print
) -> Run:
    """Train on a run's stored batches in their order, from `actor` and `critic` (None: cold), and write both to the new
    run's checkpoints/final. Under torchrun every rank calls it.

    A batch is taken as sampled by the actor that a campaign on this schedule would have sampled it with, which it is
    where the settings are those of the stored run. Where its recorded versions are others, that is said: what lies
    between is then `off_policy.importance`'s to correct, by the recorded log-probs. Raises ValueError for a run without
    stored tokens.
    """
    from t1core.cluster.training import train_settings
    from t1core.train.trainer import Trainer

    steps = stored.token_steps()
    if not steps:
        raise ValueError(f"{stored.path} stores no tokens: there is nothing to train on")
    if config.rollout.mode == "async" or config.rollout.publish_every > 1:
        raise ValueError(
            f"rollout.mode={config.rollout.mode!r} with rollout.publish_every={config.rollout.publish_every}: which "
            "versions sample is not decided by the schedule alone; train on stored batches with "
            "--set rollout.mode=one_step --set rollout.publish_every=1"
        )
    schedule = {"num_critic_only_steps": config.train.num_critic_only_steps}
    settings = train_settings(
        config, actor_path=str(actor), critic_path=None if critic is None else str(critic)
    )
    with contextlib.ExitStack() as stack:
        is_first = stack.enter_context(alone_unless_launched())
        run = _new_run(config, num_steps=len(steps)) if is_first else None
        log = say if run is None else stack.enter_context(closing(run, say))
        trainer = Trainer(settings)
        trainer.setup()
        try:
            for number, step in enumerate(steps):
                lag = expected_staleness(number, **schedule) if config.rollout.mode == "one_step" else 0
                sampler = weight_version(number, **schedule) - lag
                batch, is_moved = as_sampled_by(replace(stored.batch(step)[0], step=number), sampler)
                if is_moved and is_first:
                    log(
                        f"step {step}: sampled by other versions than this schedule's {sampler}; off_policy.importance="
                        f"{config.train.off_policy.importance} is what corrects for it"
                    )
                result = trainer.train_batch(
                    batch,
                    update_actor=number >= config.train.num_critic_only_steps,
                    expected_version_lag=lag,
                )
                trainer.rotate(weight_version(number + 1, **schedule))
                if run is not None:
                    run.record_tokens(batch, per_token=result.per_token)
                    run.record_metrics(result.metrics, step=number)
                    log(f"step {number + 1}/{len(steps)}  gap {result.metrics['logprob_gap/abs_mean']:.4f}")
            final = stored.path if run is None else run.path
            for role in trainer.learners:
                trainer.save_weights(final / "checkpoints" / "final" / role, role)
        finally:
            trainer.close()
    return stored if run is None else Run.open(run.path)


def as_sampled_by(batch: Batch, version: int) -> tuple[Batch, bool]:
    """The batch with every token sampled by `version`, and whether a trained token said otherwise."""
    mask = batch.loss_mask.astype(bool)
    is_moved = bool((batch.weight_versions[mask] != version).any())
    versions = np.where(mask, version, batch.weight_versions).astype(batch.weight_versions.dtype)
    return replace(batch, weight_versions=versions), is_moved
