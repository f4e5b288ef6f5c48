"""Calling a part in another process: every control call has a deadline, and an error names the part that failed."""

import asyncio
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayTaskError, WorkerCrashedError


class PartDied(RuntimeError):
    """A process of the campaign is gone: killed, crashed or out of memory."""


class PartSilent(RuntimeError):
    """A process of the campaign did not answer within its deadline."""


class Part:
    """An actor with a name for people, such as `trainer rank 0` or `engine 0`."""

    def __init__(self, name: str, actor: ray.actor.ActorHandle) -> None:
        self.name = name
        self.actor = actor

    async def call(self, method: str, *args: Any, deadline_s: float | None, **kwargs: Any) -> Any:
        """Call and await. `deadline_s` None is for bulk work, whose liveness the watchdog looks after.

        Raises PartDied or PartSilent with the part's name, and the method's own error as it was raised there.
        """
        reference = getattr(self.actor, method).remote(*args, **kwargs)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(reference.future()), deadline_s)
        except TimeoutError:
            raise PartSilent(f"{self.name} did not answer {method} within {deadline_s:g} s") from None
        except (ActorDiedError, RayActorError, WorkerCrashedError) as error:
            raise PartDied(f"{self.name} died during {method}: {_first_line(error)}") from None
        except RayTaskError as error:
            cause = error.cause
            raise (
                cause if isinstance(cause, Exception) else RuntimeError(f"{self.name}: {error}")
            ) from error

    def pid(self) -> int:
        """Process id of the part. Raises PartDied when it is gone, PartSilent after a minute."""
        try:
            return ray.get(self.actor.pid.remote(), timeout=60)
        except GetTimeoutError:
            raise PartSilent(f"{self.name} did not answer pid within 60 s") from None
        except RayActorError as error:
            raise PartDied(f"{self.name} died: {_first_line(error)}") from None

    def kill(self) -> None:
        """End the process at once."""
        ray.kill(self.actor, no_restart=True)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:400]


class Watchdog:
    """Probes every part again and again; the first that dies or stays silent ends the campaign with its name."""

    def __init__(self, parts: list[Part], *, grace_s: float, period_s: float, deadline_s: float) -> None:
        self._parts = parts
        self._grace_s = grace_s
        self._period_s = period_s
        self._deadline_s = deadline_s

    async def watch(self) -> None:
        """Run until a probe fails: raises PartDied or PartSilent."""
        await asyncio.sleep(self._grace_s)
        while True:
            await asyncio.gather(*(part.call("ping", deadline_s=self._deadline_s) for part in self._parts))
            await asyncio.sleep(self._period_s)


async def guarded(work: Any, watchdog: Watchdog) -> Any:
    """Await `work` while the watchdog watches; whichever fails first is raised and the other cancelled."""
    main, watch = asyncio.ensure_future(work), asyncio.ensure_future(watchdog.watch())
    try:
        await asyncio.wait({main, watch}, return_when=asyncio.FIRST_COMPLETED)
        if main.done():
            return main.result()
        watch.result()
        raise AssertionError("unreachable: a watchdog only ends by raising")
    finally:
        for task in (main, watch):
            task.cancel()
        await asyncio.gather(main, watch, return_exceptions=True)
