"""An evaluation by itself: one policy, one pool, one protocol, in this process; its run directory holds the scores.

No trainer and no Ray: the engine (or the way to its server) and the trial host share the process.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from t1core.analysis.scores import score_line
from t1core.campaign.asset_key import weights_key
from t1core.campaign.campaign import closing
from t1core.campaign.preflight import check_budgets, check_machine
from t1core.campaign.run_name import new_run_name
from t1core.config import CampaignConfig
from t1core.controller.evaluate import score_split
from t1core.records import Score
from t1core.store import Run, RunState, collect_provenance
from t1core.tasks.index import Entry
from t1core.tasks.pool import Pool

Say = Callable[[str], None]


def evaluate_policy(
    config: CampaignConfig, model: Path, *, pool: Path, split: str | None = None, say: Say = print
) -> Run:
    """Score a policy (a Hugging Face directory) on a pool's tasks, or on those of one split. The run is finished also
    where a score is incomplete, which the score says.

    Raises ValueError for a plan that this machine or pool can't carry, KeyboardInterrupt when interrupted.
    """
    check_machine(config)
    opened = Pool.open(pool)
    entries = opened.split(split) if split else opened.entries
    check_budgets(config, opened, actor=model, say=say)
    run = Run.create(
        config.run_root,
        campaign=config.name,
        run_name=new_run_name(config),
        config=config.model_dump(mode="json"),
        provenance=collect_provenance(),
        num_steps=0,
    )
    with closing(run, say) as log:
        log(f"run directory: {run.path}")
        run.update_status(state=RunState.RUNNING, phase="evaluating")
        score = asyncio.run(_evaluate(config, model, opened, entries, split=split or "all", run=run))
        log(score_line(score))
    return Run.open(run.path)


async def _evaluate(
    config: CampaignConfig, model: Path, pool: Pool, entries: tuple[Entry, ...], *, split: str, run: Run
) -> Score:
    # Heavy libraries only once the plan has been found sound.
    from t1core.cluster.engines import start_engine
    from t1core.cluster.hosting import make_runner
    from t1core.model.shape import ModelShape

    engine = await start_engine(config, model=model, name="the engine", log_file=run.logs / "engine_0.log")
    shape = ModelShape.from_hf(model)
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
            score, results = await score_split(
                config,
                pool,
                entries[: config.evaluation.tasks_per_split],
                split=split,
                step=0,
                launch=runner.run,
                cut=runner.cut,
                max_live=config.rollout.max_live_trials,
                weights={"directory": model.name, "checksum": weights_key(model)[:16]},
            )
        finally:
            await grader.close()
            await sandbox.close()
    finally:
        await engine.close()
    run.record_trajectories([item.trajectory for item in results], step=0, kind="eval")
    run.record_score(score)
    return score
