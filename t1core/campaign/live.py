"""Telling who watches where the trials in flight are, beside the loop and never in its way."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from t1core.cluster import PartLost
from t1core.records import TrialInFlight
from t1core.store import Run

_log = logging.getLogger(__name__)
_PERIOD_S = 2.0


@contextlib.asynccontextmanager
async def telling(
    run: Run, ask: Callable[[], Awaitable[Sequence[TrialInFlight]]], *, period_s: float = _PERIOD_S
) -> AsyncIterator[None]:
    """While the block runs, write what `ask` answers to the run again and again. A part that is lost or a disk that is
    full ends the telling alone: the loop meets either by itself and says so. Whatever else breaks it is a fault of
    ours: it ends the block at once, and is raised in a group.
    """
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_tell(run, ask, period_s))
        try:
            yield
        finally:
            task.cancel()


async def _tell(run: Run, ask: Callable[[], Awaitable[Sequence[TrialInFlight]]], period_s: float) -> None:
    while True:
        try:
            run.record_live(await ask())
        except (PartLost, OSError) as error:
            _log.warning("no more is told of trials in flight: %s: %s", type(error).__name__, error)
            return
        await asyncio.sleep(period_s)
