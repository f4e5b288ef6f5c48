"""Going on with a run whose driver is gone: from the newest whole checkpoint, as the run's next attempt.

What later steps left is set aside in the folder of the attempt that wrote it, so that no trial is counted twice; the
batch that was collected and not yet trained on lies beside the checkpoint, so that none is lost.
"""

from collections.abc import Callable
from pathlib import Path

from t1core.campaign.asset import Assets
from t1core.campaign.campaign import carry_out
from t1core.campaign.preflight import check_machine
from t1core.config.load import resolve
from t1core.controller import newest_resumption
from t1core.store import Run, RunState, Standing, collect_provenance
from t1core.tasks.pool import Pool


def resume_campaign(path: Path, *, from_start: bool = False, say: Callable[[str], None] = print) -> Path:
    """Carry a run to its end. A run that has no checkpoint yet begins anew; one whose checkpoints can't be gone on from
    (weights only, or damaged) does so with `from_start` alone.

    Raises ValueError for such a run without it, for one that has finished or whose assets are gone, RunBusy for one
    that is being written, and whatever breaks the campaign otherwise.
    """
    reader = Run.open(path)
    if reader.status().state is RunState.FINISHED:
        raise ValueError(f"run {reader.path} has finished: there is nothing to resume")
    config, plan = resolve(reader.config(), origin=str(reader.path)), reader.plan()
    assets = Assets(
        pool=Path(plan["pool"]),
        actor=Path(plan["actor"]),
        critic=Path(plan["critic"]) if plan["critic"] else None,
    )
    for what in (assets.pool, assets.actor, assets.critic):
        if what is not None and not what.is_dir():
            raise ValueError(
                f"run {reader.path} was started from {what}, which is gone: put it back to resume"
            )
    check_machine(config)
    pool = Pool.open(assets.pool)
    checkpoints = reader.folder("checkpoints")
    resumption = newest_resumption(checkpoints, pool=pool)
    unusable = sorted(found.name for found in checkpoints.glob("step_*"))
    if resumption is None and unusable and not from_start:
        raise ValueError(
            f"run {reader.path} has checkpoints ({unusable[-1]} is the newest) and none can be gone on from: they hold "
            "weights only (checkpoint_content), are damaged, or lack the loop's state. --from-start begins the run "
            "anew and sets its records aside; such weights start another run as model.actor_path and model.critic_path"
        )
    run = Run.resume(path)
    provenance = collect_provenance()
    run.record_attempt(provenance)
    if resumption is None:
        standing = Standing(trained=-1, collected=-1, evaluated=-1)
        where = "there is no checkpoint to go on from (checkpoint_every writes them): it starts from the beginning"
    else:
        iteration = resumption.iteration
        collected = iteration - 1 + len(resumption.waiting)
        standing = Standing(trained=iteration - 1, collected=collected, evaluated=iteration)
        where = f"{iteration} steps are trained"
    aside = run.set_aside(standing)
    say(f"attempt {run.status().attempt}: {where}" + (f"; later records are in {aside}" if aside else ""))
    if provenance["git"] != reader.provenance()["git"]:
        say(
            "the code is not the one that the run was started with; provenance.json of each attempt tells both"
        )
    return carry_out(
        config,
        assets,
        pool=pool,
        run=run,
        say=say,
        is_evaluated=plan["is_evaluated"],
        resumption=resumption,
    )
