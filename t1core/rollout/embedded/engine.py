"""The embedded engine's face: the async contract over a loop that runs on a thread of its own.

A second numerical implementation on purpose: transformers' model, bfloat16 by default, against the trainer's
Megatron. Log-probs describe log_softmax(logits / temperature) before truncation, from float32 logits. Draws
depend only on (sampling seed, position), or without such a seed on (request id, position); logits still differ
in their last bits with what else is in the batch, unless the engine was started as batch-invariant.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from t1core.records import Generation, SamplingParams
from t1core.rollout.embedded.forward import LaneModel
from t1core.rollout.embedded.loop import Loop, Request
from t1core.rollout.embedded.sampler import request_key
from t1core.rollout.engine import EngineDead, EngineRefused, PauseMode

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class EmbeddedEngine:
    """Continuous batching over transformers' Qwen3.5-MoE on the CPU, one thread. Implements `Engine`."""

    def __init__(
        self,
        model_dir: Path,
        *,
        dtype: Literal["bfloat16", "float32"] = "bfloat16",
        max_running: int = 32,
        max_context: int = 8192,
        max_cached_tokens: int = 262_144,
        seed: int = 0,
        weight_version: int = 0,
        name: str = "engine",
        batch_invariant: bool = False,
    ) -> None:
        """Load the checkpoint in `model_dir` (Hugging Face files) and start the loop.

        max_running: requests decoded together; more wait. max_context: prompt plus output tokens of one
        request.
        max_cached_tokens: tokens of idle sessions kept for their next turn. batch_invariant: forward each
        request by itself and share no prefixes, so that what runs beside it does not reach its last bits;
        several times slower. Raises EngineRefused for a dtype or a directory that can't be used.
        """
        if dtype not in _DTYPES:
            raise EngineRefused(f"dtype {dtype!r} is not one of {sorted(_DTYPES)}")
        if not (Path(model_dir) / "config.json").is_file():
            raise EngineRefused(
                f"model_dir {model_dir}: no config.json there; give a Hugging Face checkpoint directory"
            )
        torch.set_num_threads(1)
        self.name = name
        self._seed = seed
        self._model = LaneModel(
            Path(model_dir), dtype=_DTYPES[dtype], num_lanes=max_running, max_context=max_context
        )
        self._loop = Loop(
            self._model,
            max_cached_tokens=max_cached_tokens,
            weight_version=weight_version,
            batch_invariant=batch_invariant,
        )
        self._inbox: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._death: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"{name}-loop", daemon=True)
        self._thread.start()

    async def generate(
        self,
        input_ids: np.ndarray,
        *,
        sampling: SamplingParams,
        request_id: str,
        session_id: str | None = None,
        routed_experts_start: int = 0,
    ) -> Generation:
        """See `Engine.generate`. Cancelling the awaiting task aborts the request."""
        ids = np.array(input_ids, dtype=np.int32)
        self._check(ids, sampling=sampling, routed_experts_start=routed_experts_start)
        seeded = sampling.sampling_seed is not None
        key = request_key(sampling.sampling_seed) if seeded else request_key(self._seed, request_id)
        request = Request(
            ids=ids,
            sampling=sampling,
            request_id=request_id,
            session_id=session_id,
            routed_experts_start=routed_experts_start,
            key=key,
        )
        try:
            answer = await self._ask(lambda: self._loop.submit(request))
            return await asyncio.shield(asyncio.wrap_future(answer))
        except asyncio.CancelledError:
            self._post(lambda: self._loop.abort(request_id))
            raise

    async def pause_generation(self, mode: PauseMode = "abort") -> None:
        await self._ask(lambda: self._loop.pause(mode))

    async def continue_generation(self) -> None:
        await self._ask(self._loop.resume)

    async def abort_request(self, request_id: str) -> bool:
        return await self._ask(lambda: self._loop.abort(request_id))

    async def flush_cache(self) -> None:
        await self._ask(self._loop.flush)

    async def update_weights(self, version: int, tensors: dict[str, np.ndarray]) -> str:
        """See `Engine.update_weights`. Requests frozen by an `in_place` pause go on with their state of the
        old weights; their tokens carry both versions and their sessions are not kept.
        """
        return await self._ask(lambda: self._loop.update_weights(version, tensors))

    async def release_session(self, session_id: str) -> None:
        await self._ask(lambda: self._loop.release(session_id))

    async def health(self) -> dict[str, Any]:
        return await self._ask(self._loop.health)

    async def close(self) -> None:
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    def _check(self, ids: np.ndarray, *, sampling: SamplingParams, routed_experts_start: int) -> None:
        vocab_size, max_context = self._model.shape.vocab_size, self._model.lanes.max_context
        if ids.ndim != 1 or len(ids) == 0:
            raise EngineRefused(
                f"input_ids has shape {ids.shape}; give at least one token id, in one dimension"
            )
        if ids.min() < 0 or ids.max() >= vocab_size:
            raise EngineRefused(
                f"input_ids spans {ids.min()}..{ids.max()}; this model's ids are 0..{vocab_size - 1}"
            )
        if sampling.max_new_tokens < 1:
            raise EngineRefused(f"max_new_tokens is {sampling.max_new_tokens}; ask for at least 1")
        if len(ids) + sampling.max_new_tokens > max_context:
            raise EngineRefused(
                f"prompt of {len(ids)} plus max_new_tokens {sampling.max_new_tokens} passes max_context "
                f"{max_context}; shorten the prompt or ask for fewer tokens"
            )
        if not (sampling.temperature >= 0 and 0 < sampling.top_p <= 1):
            raise EngineRefused(
                f"temperature {sampling.temperature}, top_p {sampling.top_p}: temperature must be at least 0 and "
                "top_p in (0, 1]"
            )
        if not 0 <= routed_experts_start <= len(ids):
            raise EngineRefused(
                f"routed_experts_start is {routed_experts_start}; it must be in 0..{len(ids)}"
            )

    async def _ask(self, call: Callable[[], Any]) -> Any:
        return await asyncio.shield(asyncio.wrap_future(self._post(call)))

    def _post(self, call: Callable[[], Any]) -> Future[Any]:
        """Have the loop's thread run `call` between two steps."""
        answer: Future[Any] = Future()
        with self._lock:
            if self._death is None:
                self._inbox.put((call, answer))
            else:
                answer.set_exception(EngineDead(f"{self.name}: {self._death}"))
        return answer

    def _run(self) -> None:
        # OpenMP's thread count belongs to the calling thread: setting it in the constructor's is not enough
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                while self._answer_messages():
                    if self._loop.has_work():
                        self._loop.turn()
            death = "the engine was closed"
        except (
            BaseException
        ) as error:  # whatever broke, the callers must hear of it rather than wait for ever
            death = f"the loop crashed: {type(error).__name__}: {error}"
        with self._lock:
            self._death = death
            while not self._inbox.empty():
                if (message := self._inbox.get()) is not None:
                    message[1].set_exception(EngineDead(f"{self.name}: {death}"))
        self._loop.fail_all(EngineDead(f"{self.name}: {death}"))

    def _answer_messages(self) -> bool:
        """Run all messages there are, waiting for one when there is nothing else to do. False when told to
        close.
        """
        while not (self._inbox.empty() and self._loop.has_work()):
            message = self._inbox.get()
            if message is None:
                return False
            call, answer = message
            try:
                answer.set_result(call())
            except EngineRefused as refusal:  # the caller's mistake, not the engine's end
                answer.set_exception(refusal)
            except BaseException as error:
                answer.set_exception(
                    EngineDead(f"{self.name}: the loop crashed: {type(error).__name__}: {error}")
                )
                raise
        return True
