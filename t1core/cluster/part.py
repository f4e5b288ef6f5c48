"""Calling a part in another process: every control call has a deadline, and an error names the part that failed."""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayTaskError, WorkerCrashedError

from t1core.cluster.out_of_memory import OutOfMemory
from t1core.records import Boundary

_log = logging.getLogger(__name__)
_CHECK_S = 5.0  # a dead process is known at once; this only bounds the wait for one that is silent


class PartLost(RuntimeError):
    """A process of the campaign can't be worked with; `boundary` is where that failure is filed."""

    def __init__(self, message: str, *, boundary: Boundary = Boundary.OURS) -> None:
        super().__init__(message)
        self.boundary = boundary


class PartDied(PartLost):
    """It is gone: killed, crashed or out of memory."""


class PartSilent(PartLost):
    """It did not answer within its deadline."""


@dataclass(frozen=True)
class Progress:
    """How far a part is: the long call it is in (None between calls) and a count that grows while that gets on."""

    call: str | None
    count: int


class Part:
    """An actor with a name for people, such as `trainer rank 0` or `engine 0`, and the boundary its loss is filed
    under."""

    def __init__(
        self, name: str, actor: ray.actor.ActorHandle, *, boundary: Boundary = Boundary.OURS
    ) -> None:
        self.name = name
        self.actor = actor
        self.boundary = boundary
        self._out_of_memory = OutOfMemory()

    async def call(self, method: str, *args: Any, deadline_s: float | None, **kwargs: Any) -> Any:
        """Call and await. `deadline_s` None is for bulk work, whose liveness the watchdog looks after.

        Raises PartDied or PartSilent with the part's name, and the method's own error as it was raised there, with
        the part's name in a note.
        """
        limit = asyncio.timeout(deadline_s)
        try:
            reference = getattr(self.actor, method).remote(*args, **kwargs)
            async with limit:
                return await asyncio.wrap_future(reference.future())
        except RayTaskError as error:  # first: it is also an instance of the error it carries
            cause = error.cause
            if not isinstance(cause, Exception):
                raise RuntimeError(f"{self.name}, {method}: {error}") from error
            cause.add_note(f"raised by {self.name} in {method}")
            raise cause from error
        except (ActorDiedError, RayActorError, WorkerCrashedError) as error:
            raise PartDied(
                f"{self.name} died during {method}: {self._why(error)}", boundary=self.boundary
            ) from None
        except TimeoutError:
            if not limit.expired():
                raise
            raise PartSilent(
                f"{self.name} did not answer {method} within {deadline_s:g} s", boundary=self.boundary
            ) from None

    def pid(self) -> int:
        """Process id of the part. Raises PartDied when it is gone, PartSilent after a minute."""
        try:
            return ray.get(self.actor.pid.remote(), timeout=60)
        except GetTimeoutError:
            raise PartSilent(f"{self.name} did not answer pid within 60 s", boundary=self.boundary) from None
        except RayActorError as error:
            raise PartDied(f"{self.name} died: {self._why(error)}", boundary=self.boundary) from None

    def _why(self, error: Exception) -> str:
        return "; ".join(filter(None, [self._out_of_memory.told(), _gist(error)]))

    def kill(self) -> None:
        """End the process at once."""
        ray.kill(self.actor, no_restart=True)


def _gist(error: Exception) -> str:
    """The first line, which says what happened, and the last, where the way it ended or an error at start stands."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join([*lines[:1], *lines[1:][-1:]]).partition(" Some common causes")[0][:600]


class Watchdog:
    """Probes every part again and again; the first that dies or stays silent ends the campaign with its name.

    A part that answers with its `Progress` is silent, too, when a call of it has not got on for `progress_s`.
    """

    def __init__(
        self,
        parts: list[Part],
        *,
        grace_s: float,
        period_s: float,
        deadline_s: float,
        progress_s: float = float("inf"),
    ) -> None:
        self._parts = parts
        self._grace_s = grace_s
        self._period_s = period_s
        self.deadline_s = deadline_s
        self._progress_s = progress_s
        self._seen: dict[str, tuple[Progress, float]] = {}

    async def watch(self) -> None:
        """Run until a probe fails: raises PartDied or PartSilent."""
        await asyncio.sleep(self._grace_s)
        while True:
            answers = await asyncio.gather(
                *(part.call("ping", deadline_s=self.deadline_s) for part in self._parts)
            )
            for part, answer in zip(self._parts, answers, strict=True):
                if isinstance(answer, Progress):
                    self._check_progress(part, answer, now=time.monotonic())
            await asyncio.sleep(self._period_s)

    async def dead(self) -> PartDied | None:
        """Ask once, briefly, whether a part is gone."""
        deadline_s = min(_CHECK_S, self.deadline_s)
        answers = await asyncio.gather(
            *(part.call("ping", deadline_s=deadline_s) for part in self._parts), return_exceptions=True
        )
        return next((answer for answer in answers if isinstance(answer, PartDied)), None)

    def _check_progress(self, part: Part, progress: Progress, *, now: float) -> None:
        last, since = self._seen.get(part.name, (None, now))
        if progress != last:
            self._seen[part.name] = (progress, now)
        elif progress.call is not None and now - since > self._progress_s:
            raise PartSilent(
                f"{part.name} has not got on with {progress.call} for {now - since:.0f} s",
                boundary=part.boundary,
            )


async def guarded(work: Any, watchdog: Watchdog) -> Any:
    """Await `work` while the watchdog watches; whichever fails first is raised and the other cancelled.

    When `work` fails because a part is gone, that is what is raised. What is cancelled gets twice the watchdog's
    deadline to clean up, then is left behind.
    """
    main, watch = asyncio.ensure_future(work), asyncio.ensure_future(watchdog.watch())
    try:
        await asyncio.wait({main, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not main.done():
            watch.result()
            raise AssertionError("unreachable: a watchdog only ends by raising")
        error = main.exception()
        if error is None:
            return main.result()
        if not _names_part(error) and (dead := await watchdog.dead()) is not None:
            raise dead from error
        raise error
    finally:
        for task in (main, watch):
            task.cancel()
        done, left = await asyncio.wait({main, watch}, timeout=2 * watchdog.deadline_s)
        for task in done:
            if not task.cancelled():
                task.exception()  # marks it as seen
        if left:
            _log.warning("the campaign's loop did not end within %g s", 2 * watchdog.deadline_s)


def _names_part(error: BaseException) -> bool:
    named = (PartDied, PartSilent)
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(named) is not None
    return isinstance(error, named)
