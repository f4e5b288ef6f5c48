"""Engines with one fault each, for fault tests and failure notebooks: one that never answers, one that dies
mid-request, one that returns no routes, one that returns all of them where a delta was asked for.

Both wrap a real engine, so that everything but the fault is real.
"""

import asyncio
from dataclasses import replace
from typing import Any, Never

import numpy as np

from t1core.records import Generation, SamplingParams
from t1core.rollout.engine import Engine, EngineDead, PauseMode


class _Wrapped:
    """Passes every call on to `engine`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def generate(
        self,
        input_ids: np.ndarray,
        *,
        sampling: SamplingParams,
        request_id: str,
        session_id: str | None = None,
        routed_experts_start: int = 0,
    ) -> Generation:
        return await self.engine.generate(
            input_ids,
            sampling=sampling,
            request_id=request_id,
            session_id=session_id,
            routed_experts_start=routed_experts_start,
        )

    async def pause_generation(self, mode: PauseMode = "abort") -> None:
        await self.engine.pause_generation(mode)

    async def continue_generation(self) -> None:
        await self.engine.continue_generation()

    async def abort_request(self, request_id: str) -> bool:
        return await self.engine.abort_request(request_id)

    async def flush_cache(self) -> None:
        await self.engine.flush_cache()

    async def update_weights(self, version: int, tensors: dict[str, np.ndarray]) -> str:
        return await self.engine.update_weights(version, tensors)

    async def release_session(self, session_id: str) -> None:
        await self.engine.release_session(session_id)

    async def health(self) -> dict[str, Any]:
        return await self.engine.health()

    async def close(self) -> None:
        await self.engine.close()


class SilentEngine(_Wrapped):
    """Serves `num_answers` requests, then never answers anything again, `health` included; only `close` still
    works.
    """

    def __init__(self, engine: Engine, *, num_answers: int = 0) -> None:
        super().__init__(engine)
        self._answers_left = num_answers

    async def generate(self, input_ids: np.ndarray, **request: Any) -> Generation:
        if self._answers_left <= 0:
            await self._silence()
        self._answers_left -= 1
        return await super().generate(input_ids, **request)

    async def pause_generation(self, mode: PauseMode = "abort") -> None:
        await self._unless_silent()
        await super().pause_generation(mode)

    async def abort_request(self, request_id: str) -> bool:
        await self._unless_silent()
        return await super().abort_request(request_id)

    async def update_weights(self, version: int, tensors: dict[str, np.ndarray]) -> str:
        await self._unless_silent()
        return await super().update_weights(version, tensors)

    async def health(self) -> dict[str, Any]:
        await self._unless_silent()
        return await super().health()

    async def _unless_silent(self) -> None:
        if self._answers_left <= 0:
            await self._silence()

    async def _silence(self) -> Never:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable: the future above is never set")


class DyingEngine(_Wrapped):
    """Serves `num_answers` requests and dies while serving the next: that one and all later calls raise
    EngineDead.
    """

    def __init__(self, engine: Engine, *, num_answers: int = 0) -> None:
        super().__init__(engine)
        self._answers_left = num_answers

    async def generate(self, input_ids: np.ndarray, **request: Any) -> Generation:
        if self._answers_left <= 0:
            await self.engine.close()
            raise EngineDead("the engine died on purpose (DyingEngine)")
        self._answers_left -= 1
        return await super().generate(input_ids, **request)


class RoutelessEngine(_Wrapped):
    """Serves everything but the routes, as an engine does that was started without its flag."""

    async def generate(self, input_ids: np.ndarray, **request: Any) -> Generation:
        return replace(await super().generate(input_ids, **request), routed_experts=None)


class FullLengthRoutesEngine(_Wrapped):
    """Returns the rows of the whole sequence and says that they begin where the delta was asked from."""

    async def generate(self, input_ids: np.ndarray, **request: Any) -> Generation:
        start = request.pop("routed_experts_start", 0)
        whole = await super().generate(input_ids, routed_experts_start=0, **request)
        return replace(whole, routed_experts_start=start)
