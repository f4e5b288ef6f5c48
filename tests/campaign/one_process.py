"""A campaign whose parts live in this process: the real loop, trainer, engine, boxes and graders, without Ray.

Ray's actor classes are used as plain classes, so everything that a part does is what it does in a campaign; what is
between processes (deadlines, lost parts, the object store) has tests of its own.
"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from t1core.campaign import campaign
from t1core.campaign.asset import Assets
from t1core.cluster import actors, crew
from t1core.config import load_config
from t1core.model.shape import ModelShape
from t1core.sandbox.runtime import ensure_runtime
from t1core.store import Run


class HerePart:
    """A part as `Crew` calls it; what is no coroutine runs in one thread, as in a process of its own."""

    def __init__(self, name: str, held: Any, thread: ThreadPoolExecutor) -> None:
        self.name = name
        self.actor = HereHandle(held)
        self._held, self._thread = held, thread

    async def call(self, method: str, *args: Any, deadline_s: float | None, **kwargs: Any) -> Any:
        function = getattr(self._held, method)
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        if method in ("ping", "cpu_s", "memory_mb"):
            return function(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: function(*args, **kwargs))


class HereHandle:
    """What a Ray handle is to another part: `handle.method.remote(...)`, awaited."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __getattr__(self, method: str) -> SimpleNamespace:
        return SimpleNamespace(remote=getattr(self._held, method))


def run_here(
    overrides: list[str],
    *,
    actor: Path,
    pool: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    is_evaluated: bool = False,
) -> tuple[Run, list[str]]:
    """Run the smoke preset with the overrides; its run, and what it said."""
    have_parts_here(monkeypatch)
    said: list[str] = []
    path = campaign.run_campaign(
        load_config("smoke", overrides),
        Assets(pool, actor, None),
        run_name=name,
        say=said.append,
        is_evaluated=is_evaluated,
    )
    return Run.open(path), said


def have_parts_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every campaign of this process keep its parts here."""
    ensure_runtime()
    trainer, engine, host = (
        made.__ray_metadata__.modified_class
        for made in (actors.TrainerActor, actors.EngineActor, actors.HostActor)
    )
    monkeypatch.setitem(trainer.__init__.__globals__, "_tie_to_parent", lambda: None)
    monkeypatch.setattr(crew, "ray", SimpleNamespace(put=lambda value: value))

    @contextlib.asynccontextmanager
    async def start_here(
        config: Any, *, actor_path: Path, critic_path: Path | None, logs: Path
    ) -> AsyncIterator[crew.Crew]:
        thread = ThreadPoolExecutor(1)
        parts = [
            HerePart(name, held, thread)
            for name, held in (
                ("trainer", trainer(rank=0, world_size=1)),
                ("engine", engine()),
                ("host", host()),
            )
        ]
        made = crew.Crew(config, parts[:1], parts[1], parts[2:])
        shape = ModelShape.from_hf(actor_path)
        try:
            await crew._set_up(
                made, config, shape=shape, actor_path=actor_path, critic_path=critic_path, logs=logs
            )
            yield made
        finally:
            await made.close()
            parts[0]._held._trainer.close()
            thread.shutdown()

    monkeypatch.setattr(campaign, "start_crew", start_here)
