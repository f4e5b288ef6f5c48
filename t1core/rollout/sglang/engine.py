"""The SGLang engine: the `Engine` contract spoken to a server over HTTP on the loopback.

Log-probs are SGLang's of the sampled tokens: log_softmax(logits / temperature), before top-k and top-p. The
radix cache is keyed by weight version (`extra_key`), so that a prefix computed under one version never
starts a request under another. Where the contract and SGLang differ: sampling seeds have no effect (SGLang
honours them only in its deterministic mode, which needs CUDA kernels), said once in the log and in
`health`; sessions share one radix cache, so releasing one does nothing; an `in_place` pause answers an
abort only after `continue_generation`.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from t1core.records import Generation, SamplingParams
from t1core.rollout.engine import EngineDead, EngineRefused, PauseMode
from t1core.rollout.sglang.client import Client
from t1core.rollout.sglang.flags import Device, server_environment, server_flags
from t1core.rollout.sglang.publish import Publisher, Transport
from t1core.rollout.sglang.reply import never_started, read_generation
from t1core.rollout.sglang.served_model import ServedModel, prepare_model
from t1core.rollout.sglang.server import Server, check_environment, free_port
from t1core.rollout.sglang.version import SGLangVersion
from t1core.rollout.sglang.weights import check_weights

_log = logging.getLogger(__name__)


@dataclass
class _LiveRequest:
    """A request between its call and its answer. `rid` is its name on the server."""

    rid: str
    is_sent: bool = False
    was_aborted: asyncio.Event = field(default_factory=asyncio.Event)


class SGLangEngine:
    """One server and its client. Made by `start`; its methods run on the event loop that started it."""

    def __init__(
        self,
        server: Server,
        *,
        url: str,
        model: ServedModel,
        version: SGLangVersion,
        context_length: int,
        weight_version: int,
        transport: Transport,
        dtype: torch.dtype,
        scratch: Path,
        control_deadline_s: float,
    ) -> None:
        self.name = server.name
        self._server = server
        self._client = Client(server, url=url, deadline_s=control_deadline_s)
        self._model = model
        self._sglang = version
        self._context_length = context_length
        self._weight_version = weight_version
        self._scratch = scratch
        self._publisher = Publisher(
            self._client,
            sglang=version,
            transport=transport,
            dtype=dtype,
            scratch=scratch,
            deadline_s=control_deadline_s,
        )
        self._live: dict[str, _LiveRequest] = {}
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._paused_in_place = False
        self._is_closed = False
        self._background: set[asyncio.Task[Any]] = set()
        self._counters = {"num_requests": 0, "num_output_tokens": 0, "num_stale_retries": 0}
        self._warned_of_seeds = False

    @classmethod
    async def start(
        cls,
        model_dir: Path,
        *,
        python: Path,
        scratch: Path,
        log_file: Path,
        device: Device = "cpu",
        dtype: Literal["bfloat16", "float32"] = "bfloat16",
        max_running: int = 32,
        max_context: int = 8192,
        max_total_tokens: int = 65_536,
        gpu: int = 0,
        gpu_memory_frac: float = 0.8,
        cuda_graphs: bool = True,
        weight_version: int = 0,
        transport: Transport = "tensor",
        extra_flags: Sequence[str] = (),
        start_deadline_s: float = 300.0,
        control_deadline_s: float = 120.0,
        name: str = "sglang",
    ) -> "SGLangEngine":
        """Serve the checkpoint in `model_dir` (Hugging Face files) with the SGLang installed under `python`.

        max_context: prompt plus output tokens of one request; max_total_tokens: tokens of KV cache over all
        requests and kept prefixes. gpu, gpu_memory_frac, cuda_graphs: see `server_flags`; read on CUDA alone.
        scratch: a directory of our own, removed by `close`. Raises
        EngineRefused for what can't be served and EngineDead when the server does not come up.
        """
        if max_context >= max_total_tokens:
            raise EngineRefused(
                f"max_context={max_context} does not fit max_total_tokens={max_total_tokens}: one request of "
                "full length must fit the KV cache; raise max_total_tokens"
            )
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            version = await asyncio.to_thread(check_environment, python, device=device)
            model = prepare_model(model_dir, into=scratch / "model")
            port = free_port()
            flags = server_flags(
                model.path,
                device=device,
                dtype=dtype,
                port=port,
                weight_version=weight_version,
                context_length=max_context,
                max_running_requests=max_running,
                max_total_tokens=max_total_tokens,
                gpu=gpu,
                gpu_memory_frac=gpu_memory_frac,
                cuda_graphs=cuda_graphs,
                extra=extra_flags,
            )
        except ValueError as error:
            raise EngineRefused(str(error)) from error
        environment = server_environment(device=device, scratch=scratch, inherited=os.environ)
        server = Server(python, flags=flags, environment=environment, log_file=log_file, name=name)
        engine = cls(
            server,
            url=f"http://127.0.0.1:{port}",
            model=model,
            version=version,
            context_length=max_context,
            weight_version=weight_version,
            transport=transport,
            dtype=getattr(torch, dtype),
            scratch=scratch,
            control_deadline_s=control_deadline_s,
        )
        try:
            seconds = await server.wait_until_ready(engine._client.is_ready, deadline_s=start_deadline_s)
        except BaseException:
            await engine.close()
            raise
        _log.info("%s: SGLang %s ready after %.1f s at %s", name, version, seconds, engine._client.url)
        return engine

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
        ids = np.asarray(input_ids, dtype=np.int32)
        self._check(ids, sampling=sampling, request_id=request_id, routed_experts_start=routed_experts_start)
        # the server matches an abort's id as a prefix: without an end mark, aborting "t-1" would also end
        # "t-10"
        live = self._live[request_id] = _LiveRequest(rid=f"{request_id}\x1f")
        try:
            while True:
                await self._until_resumed(live)
                sent_under = self._weight_version
                if not live.is_sent:
                    return never_started(routed_experts_start, weight_version=sent_under)
                reply = await self._ask(ids, sampling, live.rid, routed_experts_start, sent_under)
                answer = read_generation(
                    reply,
                    num_prompt_tokens=len(ids),
                    routed_experts_start=routed_experts_start,
                    num_layers=self._model.num_layers,
                    experts_per_token=self._model.experts_per_token,
                    num_experts=self._model.num_experts,
                    stop_token_ids=sampling.stop_token_ids,
                    weight_version=sent_under,
                )
                if len(answer.output_versions) and answer.output_versions[0] != sent_under:
                    # sent just before a pause and admitted after an update: it may have met the old version's
                    # prefix
                    self._counters["num_stale_retries"] += 1
                    continue
                self._counters["num_requests"] += 1
                self._counters["num_output_tokens"] += len(answer.output_ids)
                return answer
        except asyncio.CancelledError:
            self._in_background(self._client.control("/abort_request", rid=live.rid))
            raise
        finally:
            del self._live[request_id]

    async def _ask(
        self, ids: np.ndarray, sampling: SamplingParams, rid: str, start: int, version: int
    ) -> Mapping[str, Any]:
        """POST /generate, without a deadline: a long answer is no fault, a dead server closes the
        connection.
        """
        return await self._client.bulk(
            "/generate",
            rid=rid,
            input_ids=ids.tolist(),
            sampling_params={
                "max_new_tokens": sampling.max_new_tokens,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "stop_token_ids": list(sampling.stop_token_ids),
                "no_stop_trim": True,
            },
            return_logprob=True,
            logprob_start_len=-1,
            return_routed_experts=True,
            routed_experts_start_len=start,
            extra_key=f"weights-{version}",
        )

    def _check(
        self, ids: np.ndarray, *, sampling: SamplingParams, request_id: str, routed_experts_start: int
    ) -> None:
        if self._is_closed:
            raise EngineDead(f"{self.name} is closed")
        if request_id in self._live:
            raise EngineRefused(f"request_id {request_id!r} is in use; give each request an id of its own")
        if ids.ndim != 1 or len(ids) == 0:
            raise EngineRefused(f"input_ids has shape {ids.shape}; expected [prompt] with at least one token")
        if int(ids.min()) < 0 or int(ids.max()) >= self._model.vocab_size:
            raise EngineRefused(
                f"input_ids span {ids.min()}..{ids.max()}, outside the vocabulary of {self._model.vocab_size}"
            )
        if len(ids) + sampling.max_new_tokens > self._context_length:
            raise EngineRefused(
                f"prompt of {len(ids)} with max_new_tokens={sampling.max_new_tokens} passes the context of "
                f"{self._context_length}; ask for fewer tokens or start it with a larger max_context"
            )
        if not 0 <= routed_experts_start <= len(ids):
            raise EngineRefused(f"routed_experts_start={routed_experts_start} is outside [0, {len(ids)}]")
        if sampling.sampling_seed is not None and not self._warned_of_seeds:
            self._warned_of_seeds = True
            _log.warning("%s: sampling_seed has no effect on the sglang engine", self.name)

    async def _until_resumed(self, live: _LiveRequest) -> None:
        """Wait out a pause here, so that a request is sent under the version that will answer it."""
        live.is_sent = False
        if not self._resumed.is_set():
            either = [asyncio.ensure_future(event.wait()) for event in (self._resumed, live.was_aborted)]
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for waiter in either:
                    waiter.cancel()
        if self._is_closed:
            raise EngineDead(f"{self.name} is closed")
        live.is_sent = not live.was_aborted.is_set()

    async def pause_generation(self, mode: PauseMode = "abort") -> None:
        """See `Engine.pause_generation`."""
        if mode not in ("abort", "in_place"):
            raise EngineRefused(f"pause mode {mode!r} is neither abort nor in_place")
        if mode == "in_place" and not self._sglang.has_version_spans:
            raise EngineRefused(
                f"pause mode in_place: SGLang {self._sglang} can't say which tokens came from which weights; "
                "use abort"
            )
        self._resumed.clear()
        self._paused_in_place = mode == "in_place"
        if mode == "abort":
            while self._num_running():
                await self._client.control("/abort_request", rid="", abort_all=True)
                await asyncio.sleep(0.02)
        await self._client.control("/pause_generation", mode=mode)

    async def continue_generation(self) -> None:
        """See `Engine.continue_generation`."""
        await self._client.control("/continue_generation")
        self._paused_in_place = False
        self._resumed.set()

    async def abort_request(self, request_id: str) -> bool:
        """See `Engine.abort_request`."""
        live = self._live.get(request_id)
        if live is None:
            return False
        if live.is_sent:
            await self._client.control("/abort_request", rid=live.rid)
            self._in_background(self._abort_again(request_id, live))
        else:
            live.was_aborted.set()
        return True

    async def _abort_again(self, request_id: str, live: _LiveRequest) -> None:
        """An abort that overtakes its request on the way is lost on the server: repeat it until there is an
        answer.
        """
        while self._live.get(request_id) is live:
            await asyncio.sleep(0.5)
            await self._client.control("/abort_request", rid=live.rid)

    async def flush_cache(self) -> None:
        """See `Engine.flush_cache`."""
        self._refuse_if_running("flush_cache")
        await self._client.control("/flush_cache?timeout=10")

    async def update_weights(self, version: int, tensors: dict[str, np.ndarray]) -> str:
        """See `Engine.update_weights`. Each parameter of the server's is held to what was sent before the checksum is
        given, which is that of any engine with the same weights.

        A failure after the first byte was sent leaves unknown weights: the server is killed and EngineDead
        raised.
        """
        check_weights(tensors, model=self._model)
        if not self._paused_in_place:
            self._refuse_if_running("update_weights")
        # an in_place pause keeps the KV cache of live requests; old prefixes stay behind under the old key
        was_paused = not self._resumed.is_set()
        self._resumed.clear()
        try:
            checksum = await self._publisher.publish(version, tensors, flush_cache=not self._paused_in_place)
            self._weight_version = version
        except (EngineRefused, RuntimeError) as error:
            await self.close()
            raise EngineDead(
                f"{self.name}: weight update {version} failed half-way and the server was ended: {error}"
            ) from error
        if not was_paused:
            self._resumed.set()
        return checksum

    async def release_session(self, session_id: str) -> None:
        """No effect: the radix cache is shared by all sessions and evicts by use."""

    async def health(self) -> dict[str, Any]:
        """See `Engine.health`. /server_info asks the scheduler, so the answer comes from the loop that
        samples.
        """
        info = await self._client.get("/server_info")
        return {
            "weight_version": self._weight_version,
            "num_running": self._num_running(),
            "num_waiting": len(self._live) - self._num_running(),
            "num_sessions": 0,
            "cached_tokens": 0,
            "is_paused": not self._resumed.is_set(),
            "sglang_version": info.get("version", str(self._sglang)),
            "max_total_tokens": info.get("max_total_num_tokens"),
            "honours_sampling_seed": False,
            **self._counters,
        }

    async def close(self) -> None:
        """See `Engine.close`. Kills the server's process group and removes the scratch directory."""
        if self._is_closed:
            return
        self._is_closed = True
        self._resumed.set()
        await asyncio.to_thread(self._server.kill)
        await self._client.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _num_running(self) -> int:
        return sum(live.is_sent for live in self._live.values())

    def _refuse_if_running(self, call: str) -> None:
        running = self._num_running()
        if running:
            raise EngineRefused(f"{call} with {running} running requests; call pause_generation first")

    def _in_background(self, coroutine: Any) -> None:
        """Run to the end whatever becomes of the caller; failures are the server's death, seen elsewhere."""
        task = asyncio.ensure_future(coroutine)
        self._background.add(task)
        task.add_done_callback(
            lambda done: (self._background.discard(done), done.cancelled() or done.exception())
        )
