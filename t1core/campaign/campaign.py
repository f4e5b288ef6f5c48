"""Running one campaign in this process: check, open the run directory, start the crew, loop, close.

However it ends (finished, failed, interrupted), status.json says so, every part is ended, and what was recorded stays
readable.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path

from t1core.agent.tokenizer import ChatTokenizer
from t1core.campaign.asset import Assets
from t1core.campaign.live import telling
from t1core.campaign.pool_check import check_verifiers
from t1core.campaign.preflight import check_budgets, check_machine, check_plan
from t1core.campaign.run_name import new_run_name
from t1core.campaign.sinks import feeding
from t1core.cluster import PartLost, guarded, start_crew
from t1core.config import CampaignConfig
from t1core.controller import Campaign, Resumption, run_loop
from t1core.records import Boundary, Failure
from t1core.rollout.engine import EngineDead
from t1core.routing import MissingRoutes
from t1core.store import DiskFull, Run, RunState, collect_provenance
from t1core.tasks.pool import Pool

Say = Callable[[str], None]
# Readers on other hosts take a run for dead after two minutes without a beat.
_BEAT_S = 15.0


def run_campaign(
    config: CampaignConfig,
    assets: Assets,
    *,
    run_name: str | None = None,
    say: Say = print,
    is_evaluated: bool = True,
) -> Path:
    """Run a campaign on what was prepared for it, from start to end, and return its run directory.

    Raises ValueError for a plan that this machine or pool can't carry, KeyboardInterrupt when interrupted, and whatever
    broke the campaign otherwise.
    """
    check_machine(config)
    pool = Pool.open(assets.pool)
    check_plan(config, pool, say=say)
    check_budgets(config, pool, actor=assets.actor, say=say)
    verifiers = check_verifiers(config, pool, say=say)
    run = Run.create(
        config.run_root,
        campaign=config.name,
        run_name=run_name or new_run_name(config),
        config=config.model_dump(mode="json"),
        provenance=collect_provenance(),
        num_steps=config.num_steps,
        plan={
            "pool": str(assets.pool),
            "actor": str(assets.actor),
            "critic": str(assets.critic) if assets.critic else None,
            "is_evaluated": is_evaluated,
            "verifiers_asked": verifiers,
        },
    )
    return carry_out(config, assets, pool=pool, run=run, say=say, is_evaluated=is_evaluated)


def carry_out(
    config: CampaignConfig,
    assets: Assets,
    *,
    pool: Pool,
    run: Run,
    say: Say,
    is_evaluated: bool,
    resumption: Resumption | None = None,
) -> Path:
    """Run a campaign into a run that is open for writing, and close it, however it ends; raises as `run_campaign`."""
    with closing(run, say) as log:
        log(f"run directory: {run.path}")
        for line in config.experiments:
            log(f"EXPERIMENT: {line}")
        work = _run(config, assets, pool, run, log, is_evaluated, resumption)
        asyncio.run(_until_signal(work, beat=run.update_status))
    return run.path


@contextlib.contextmanager
def closing(run: Run, say: Say) -> Iterator[Say]:
    """Close a run as the block ends: finished, interrupted or failed, whose cause is raised anew. Gives the log."""
    with _log(run, say) as log:
        try:
            yield log
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):  # Ray answers SIGTERM by SystemExit
            with contextlib.suppress(DiskFull):  # said in the status; the user asked for the end
                run.close(RunState.INTERRUPTED, error="interrupted")
            log("interrupted; what was finished stays readable")
            raise KeyboardInterrupt from None
        except BaseException as error:
            cause = _first_cause(error)
            told = _in_words(cause)
            failure = Failure(boundary_of(cause), type(cause).__name__, told[:2000])
            with contextlib.suppress(DiskFull):  # said in the status; must not hide the cause
                run.close(RunState.FAILED, error=told, failure=failure)
            log(f"failed: {told}")
            if cause is error:
                raise
            raise cause from error
        run.close()


async def _run(
    config: CampaignConfig,
    assets: Assets,
    pool: Pool,
    run: Run,
    log: Say,
    is_evaluated: bool,
    resumption: Resumption | None,
) -> None:
    tokenizer = ChatTokenizer.load(assets.actor)
    run.record_vocabulary([tokenizer.decode_token(token) for token in range(tokenizer.vocab_size)])
    log("starting trainer, engine and trial host")
    async with start_crew(config, actor_path=assets.actor, critic_path=assets.critic, logs=run.logs) as crew:
        run.update_status(state=RunState.RUNNING, phase="started")
        for trainer, found in zip(crew.trainers, crew.trainer_health, strict=True):
            told = ", ".join(f"{role} {taken:.1f} s" for role, taken in found["warm_up_s"].items())
            log(
                f"{trainer.name}: kernels {found['kernels']}"
                + (f"; compiled and warm: {told}" if told else "")
            )
        run.record_parts(
            {part.name: found for part, found in zip(crew.trainers, crew.trainer_health, strict=True)}
            | {crew.engine.name: crew.engine_health}
        )
        if config.rollout.engine == "sglang":
            health = crew.engine_health
            log(
                f"{crew.engine.name}: SGLang {health['sglang_version']}, {health['max_total_tokens']} tokens of cache"
            )
        campaign = Campaign(
            config=config,
            crew=crew,
            run=run,
            pool=in_order(pool, config),
            say=log,
            is_evaluated=is_evaluated,
        )
        async with telling(run, crew.live_trials), feeding(run, config.sinks):
            await guarded(run_loop(campaign, resumption), crew.watchdog())


def in_order(pool: Pool, config: CampaignConfig) -> Pool:
    """The pool with its training tasks in the order in which an unshuffled campaign trains on them; those that are held
    out stay as they are, and are evaluated as in any other campaign."""
    keys = {
        "disk": None,
        "most_tests_first": lambda entry: -entry.num_tests,
        "fewest_tests_first": lambda entry: entry.num_tests,
        "easiest_first": lambda entry: entry.level or 0,
    }
    key = keys[config.tasks.order]
    if key is None:
        return pool
    ordered = {"train": tuple(sorted(pool.split("train"), key=key))}
    return replace(pool, index=replace(pool.index, splits={**pool.index.splits, **ordered}))


async def _until_signal(work: Coroutine, *, beat: Callable[[], None]) -> None:
    """Await `work` with a beating heart; what breaks that ends the work and is raised. The first SIGINT or SIGTERM
    cancels it; later ones do not disturb its ending. The handlers are set before anything starts, and again and again,
    since Ray replaces them.
    """
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def interrupt() -> None:
        if not task.cancelling():
            task.cancel()

    def set_handlers() -> None:
        for number in signals:
            loop.add_signal_handler(number, interrupt)

    async def keep_handlers() -> None:
        while True:
            set_handlers()
            await asyncio.sleep(1.0)

    async def keep_beating() -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            with contextlib.suppress(DiskFull):  # a step's records fail loudly where there is no room
                beat()

    set_handlers()
    task = asyncio.ensure_future(work)
    keepers = [asyncio.ensure_future(keep_handlers()), asyncio.ensure_future(keep_beating())]
    try:
        await asyncio.wait({task, *keepers}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():  # a keeper never ends unless it breaks
            next(keeper for keeper in keepers if keeper.done()).result()
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if task.done() and not task.cancelled():
            task.exception()  # a SystemExit has left the loop by itself; asyncio would report it as never retrieved
        for keeper in keepers:
            keeper.cancel()
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


@contextlib.contextmanager
def _log(run: Run, say: Say) -> Iterator[Say]:
    """Lines for people, said and kept in the run's log as far as the disk and the reader take them: a campaign does
    not end because of a line.
    """
    with (run.logs / "driver.log").open("ab", buffering=0) as file:

        def log(line: str) -> None:
            with contextlib.suppress(OSError):
                file.write(f"{time.strftime('%H:%M:%S')} {line}\n".encode())
            with contextlib.suppress(OSError):
                say(line)

        yield log


def boundary_of(error: BaseException) -> Boundary:
    """Where what ended a campaign is filed: a lost process under what it held, routes that are missing or short under
    the engine that owed them."""
    if isinstance(error, PartLost):
        return error.boundary
    return Boundary.ENGINE if isinstance(error, MissingRoutes | EngineDead) else Boundary.OURS


def _in_words(error: BaseException) -> str:
    """Kind, message, and the notes that say in which part it was raised."""
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])


def _first_cause(error: BaseException) -> BaseException:
    """The first real error inside nested task groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
