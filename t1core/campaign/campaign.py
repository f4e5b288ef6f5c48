"""Running one campaign in this process: prepare, check, open the run directory, start the crew, loop, close.

However it ends (finished, failed, interrupted), status.json says so, every part is ended, and what was recorded stays
readable.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from t1core.agent.tokenizer import ChatTokenizer
from t1core.campaign.assets import Assets, prepare
from t1core.campaign.preflight import check_machine, check_pool
from t1core.cluster import guarded, start_crew
from t1core.config import CampaignConfig
from t1core.controller import Campaign, run_loop
from t1core.records import Boundary, Failure
from t1core.store import DiskFull, Run, RunState, collect_provenance
from t1core.tasks.pool import Pool

Say = Callable[[str], None]


def new_run_name(config: CampaignConfig) -> str:
    """A name that sorts by time and tells the seed."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-seed{config.seed}-{os.getpid()}"


def run_campaign(
    config: CampaignConfig, *, run_name: str | None = None, say: Say = print, is_evaluated: bool = True
) -> Path:
    """Run a campaign from start to end and return its run directory.

    Raises ValueError for a plan that this machine or pool can't carry, KeyboardInterrupt when interrupted, and whatever
    broke the campaign otherwise.
    """
    check_machine(config)
    assets = prepare(config, say=say)
    pool = Pool.open(assets.pool)
    check_pool(config, pool)
    run = Run.create(
        config.run_root,
        campaign=config.name,
        run_name=run_name or new_run_name(config),
        config=config.model_dump(mode="json"),
        provenance=collect_provenance(),
        num_steps=config.num_steps,
    )
    with _log(run, say) as log:
        log(f"run directory: {run.path}")
        try:
            asyncio.run(_with_signals(_run(config, assets, pool, run, log, is_evaluated)))
        except (asyncio.CancelledError, KeyboardInterrupt):
            log("interrupted; what was finished stays readable")
            run.close(RunState.INTERRUPTED, error="interrupted")
            raise KeyboardInterrupt from None
        except BaseException as error:
            cause = _first_cause(error)
            log(f"failed: {type(cause).__name__}: {cause}")
            failure = Failure(Boundary.OURS, type(cause).__name__, str(cause)[:2000])
            with contextlib.suppress(DiskFull):  # the status below is what must be written
                run.record_failure(failure, step=run.status().step)
            run.close(RunState.FAILED, error=f"{type(cause).__name__}: {cause}")
            if cause is error:
                raise
            raise cause from error
        run.close()
    return run.path


async def _run(
    config: CampaignConfig, assets: Assets, pool: Pool, run: Run, log: Say, is_evaluated: bool
) -> None:
    tokenizer = ChatTokenizer.load(assets.actor)
    run.record_vocabulary([tokenizer.decode_token(token) for token in range(tokenizer.vocab_size)])
    log("starting trainer, engine and trial host")
    async with start_crew(config, actor_path=assets.actor, critic_path=assets.critic) as crew:
        run.update_status(state=RunState.RUNNING, phase="started")
        campaign = Campaign(config=config, crew=crew, run=run, pool=pool, say=log, is_evaluated=is_evaluated)
        await guarded(run_loop(campaign), crew.watchdog())


async def _with_signals(work: object) -> None:
    """Await `work`; SIGINT and SIGTERM cancel it. The handlers are set again when Ray has replaced them."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    async def keep_handlers() -> None:
        while True:
            for number in signals:
                loop.add_signal_handler(number, task.cancel)
            await asyncio.sleep(1.0)

    keeper = asyncio.ensure_future(keep_handlers())
    try:
        await task
    finally:
        keeper.cancel()
        for number in signals:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _log(run: Run, say: Say) -> Iterator[Say]:
    """Lines for people, said and kept in the run's log."""
    with (run.logs / "driver.log").open("a", buffering=1) as file:

        def log(line: str) -> None:
            file.write(f"{time.strftime('%H:%M:%S')} {line}\n")
            say(line)

        yield log


def _first_cause(error: BaseException) -> BaseException:
    """The first real error inside nested task groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
