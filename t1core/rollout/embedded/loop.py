"""The engine's loop: admit waiting requests, decode all live ones together, finish those that stopped.

    messages -> [ admit: prefill waiting requests ] -> [ decode: one token for every live lane ] -> answers
                  ^ sessions, shared prefixes <------------- finished lanes copied out -----------'

Everything here runs on one thread; control calls arrive as messages between two steps, so none needs a lock.
"""

import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from t1core.records import Generation, SamplingParams
from t1core.rollout.embedded.cache import Window
from t1core.rollout.embedded.forward import LaneModel
from t1core.rollout.embedded.prefix import SharedPrefixes
from t1core.rollout.embedded.sampler import sample, uniforms
from t1core.rollout.embedded.session import Sessions
from t1core.rollout.embedded.weight import load_weights
from t1core.rollout.engine import EngineRefused, PauseMode

_MAX_WIDTH = 1024  # new tokens of one lane in one forward
_MAX_CELLS = 2048  # lanes x width of one prefill: bounds the attention mask and the activations


@dataclass(eq=False)  # compared by identity: its fields are arrays
class Request:
    """A request on its way; `key` fixes its random draws."""

    ids: np.ndarray
    sampling: SamplingParams
    request_id: str
    session_id: str | None
    routed_experts_start: int
    key: int
    answer: Future[Generation] = field(default_factory=Future)
    cached_tokens: int = 0
    spans_versions: bool = False

    @property
    def room(self) -> int:
        """Tokens a lane must hold for this request."""
        return len(self.ids) + self.sampling.max_new_tokens


class Loop:
    """The scheduler's state. `running[b]` is the request of lane b."""

    def __init__(
        self, model: LaneModel, *, max_cached_tokens: int, weight_version: int, batch_invariant: bool = False
    ) -> None:
        self._model = model
        self._batch_invariant = batch_invariant
        self._lanes = model.lanes
        self._sessions = Sessions(max_tokens=max_cached_tokens)
        self._prefixes = SharedPrefixes()
        self._running: list[Request] = []
        self._waiting: deque[Request] = deque()
        self._is_paused = False
        self._version = weight_version
        self._counters = dict.fromkeys(
            ("requests", "aborted", "prompt_tokens", "cached_prompt_tokens", "output_tokens", "decode_steps"),
            0,
        )
        self._cpu_s = {"prefill": 0.0, "decode": 0.0}

    # control calls, each run between two steps

    def submit(self, request: Request) -> Future[Generation]:
        if any(r.request_id == request.request_id for r in (*self._running, *self._waiting)):
            raise EngineRefused(f"request_id {request.request_id!r} is live already; ids must be unique")
        self._waiting.append(request)
        self._counters["requests"] += 1
        return request.answer

    def abort(self, request_id: str) -> bool:
        for lane, request in enumerate(self._running):
            if request.request_id == request_id:
                self._finish(lane, "abort")
                return True
        for request in self._waiting:
            if request.request_id == request_id:
                self._waiting.remove(request)
                self._answer_unstarted(request)
                return True
        return False

    def pause(self, mode: PauseMode) -> None:
        if mode not in ("abort", "in_place"):
            raise EngineRefused(f"pause mode {mode!r} is not one of 'abort', 'in_place'")
        self._is_paused = True
        if mode == "abort":
            for lane in reversed(range(len(self._running))):
                self._finish(lane, "abort")
            while self._waiting:
                self._answer_unstarted(self._waiting.popleft())

    def resume(self) -> None:
        self._is_paused = False

    def flush(self) -> None:
        if self._running or self._waiting:
            raise EngineRefused(
                f"flush_cache with {len(self._running)} running and {len(self._waiting)} waiting requests; "
                "pause with mode 'abort' first, or wait for them"
            )
        self._sessions.clear()
        self._prefixes.forget_states()

    def update_weights(self, version: int, tensors: dict[str, np.ndarray]) -> str:
        if not self._is_paused and (self._running or self._waiting):
            raise EngineRefused(
                f"update_weights with {len(self._running)} running and {len(self._waiting)} waiting requests; "
                "call pause_generation first"
            )
        checksum = load_weights(self._model.model, tensors, tied=self._model.tied_names)
        self._model.refresh_head()
        self._sessions.clear()
        self._prefixes.forget_states()
        for request in self._running:
            request.spans_versions = True
        self._version = version
        return checksum

    def release(self, session_id: str) -> None:
        self._sessions.release(session_id)

    def health(self) -> dict[str, Any]:
        return {
            "weight_version": self._version,
            "num_running": len(self._running),
            "num_waiting": len(self._waiting),
            "num_sessions": len(self._sessions),
            "cached_tokens": self._sessions.num_tokens + self._prefixes.num_tokens,
            "is_paused": self._is_paused,
            **self._counters,
            "prefill_cpu_s": self._cpu_s["prefill"],
            "decode_cpu_s": self._cpu_s["decode"],
        }

    # the work

    def has_work(self) -> bool:
        return not self._is_paused and bool(self._running or self._waiting)

    def turn(self) -> None:
        """Admit what fits, then decode one token for every live lane."""
        started = time.thread_time()
        if self._waiting and len(self._running) < self._lanes.num_lanes:
            self._admit()
        admitted = time.thread_time()
        if self._running:
            self._decode()
        self._cpu_s["prefill"] += admitted - started
        self._cpu_s["decode"] += time.thread_time() - admitted

    def fail_all(self, error: Exception) -> None:
        """Answer every live request with an error."""
        for request in (*self._running, *self._waiting):
            request.answer.set_exception(error)
        self._running.clear()
        self._waiting.clear()

    def _admit(self) -> None:
        """Prefill as many waiting requests as there are free lanes, and give each its first token."""
        first = len(self._running)
        while self._waiting and len(self._running) < self._lanes.num_lanes:
            self._start(self._waiting.popleft())
        ends = np.array([len(request.ids) for request in self._running[first:]])
        # sampling comes after all forwards: it may finish a lane and move another one, forwarded or not
        starts = self._lanes.length[first : len(self._running)].copy()
        logits = [
            self._model.forward(Window(first + group.start, start=starts[group], end=ends[group]))
            for group in self._groups(ends - starts)
        ]
        self._sample(torch.cat(logits), first_lane=first)

    def _start(self, request: Request) -> None:
        """Give a request a lane holding whatever was forwarded of its prompt before.

        All but the last forward's worth of a long prompt, and a known prefix that nobody has forwarded yet,
        run here.
        """
        lane, ids, lanes = len(self._running), request.ids, self._lanes
        state, boundary = None, 0
        if request.session_id is not None:
            state = self._sessions.take(request.session_id, ids=ids, version=self._version)
        if state is None and not self._batch_invariant:
            self._prefixes.learn(ids)
            boundary, state = self._prefixes.longest(ids)
        done = request.cached_tokens = 0 if state is None else len(state.ids)
        lanes.start(lane, ids, state=state, room=request.room)
        self._running.append(request)
        self._counters["prompt_tokens"] += len(ids)
        self._counters["cached_prompt_tokens"] += done
        while done < boundary or len(ids) - done > _MAX_WIDTH:
            end = min(done + _MAX_WIDTH, boundary if done < boundary else len(ids) - 1)
            self._model.forward(Window(lane, start=np.array([done]), end=np.array([end])))
            done = end
            if done == boundary:
                self._prefixes.keep(lanes.copy_out(lane, version=self._version))

    def _decode(self) -> None:
        self._counters["decode_steps"] += 1
        length = self._lanes.length[: len(self._running)].copy()
        if self._batch_invariant:
            lanes = range(len(length))
            logits = torch.cat(
                [
                    self._model.forward(Window(lane, start=length[[lane]], end=length[[lane]] + 1))
                    for lane in lanes
                ]
            )
        else:
            logits = self._model.forward(Window(0, start=length, end=length + 1))
        self._sample(logits, first_lane=0)

    def _groups(self, widths: np.ndarray) -> list[slice]:
        """Neighbouring lanes that share a forward; each has its own where neighbours must not matter."""
        if self._batch_invariant:
            return [slice(lane, lane + 1) for lane in range(len(widths))]
        return _groups(widths)

    def _sample(self, logits: torch.Tensor, *, first_lane: int) -> None:
        """Give lanes first_lane.. their next token, and finish those that are done."""
        lanes, n = self._lanes, len(logits)
        requests = self._running[first_lane : first_lane + n]
        rows = np.arange(first_lane, first_lane + n)
        position = lanes.length[rows]
        draws = uniforms(np.array([r.key for r in requests], dtype=np.uint64), positions=position)
        ids, logprobs = sample(logits, params=[r.sampling for r in requests], draws=draws)
        lanes.ids[rows, position] = ids
        lanes.logprobs[rows, position] = logprobs
        lanes.versions[rows, position] = self._version
        self._counters["output_tokens"] += n
        for index in reversed(range(n)):  # from the back, so that moving the last lane down never skips one
            request, num_output = requests[index], int(position[index]) + 1 - len(requests[index].ids)
            if int(ids[index]) in request.sampling.stop_token_ids:
                self._finish(first_lane + index, "stop")
            elif num_output >= request.sampling.max_new_tokens:
                self._finish(first_lane + index, "length")

    def _finish(self, lane: int, reason: str) -> None:
        """Answer a lane's request, keep its session, and close the gap with the last lane."""
        request, lanes = self._running[lane], self._lanes
        prompt, length = len(request.ids), int(lanes.length[lane])
        output = slice(prompt, length + 1)
        routes = lanes.routes[lane, request.routed_experts_start : length].copy()
        num_output = length + 1 - prompt
        expected = prompt + num_output - 1 - request.routed_experts_start
        assert len(routes) == expected, (
            f"request {request.request_id}: {len(routes)} routing rows, expected {expected}"
        )
        generation = Generation(
            output_ids=lanes.ids[lane, output].copy(),
            output_logprobs=lanes.logprobs[lane, output].copy(),
            routed_experts=routes,
            routed_experts_start=request.routed_experts_start,
            finish_reason=reason,
            weight_version=self._version,
            output_versions=lanes.versions[lane, output].copy(),
            cached_tokens=request.cached_tokens,
        )
        if request.session_id is not None and not request.spans_versions:
            self._sessions.keep(request.session_id, lanes.copy_out(lane, version=self._version))
        last = len(self._running) - 1
        if lane != last:
            lanes.move(last, to=lane)
            self._running[lane] = self._running[last]
        self._running.pop()
        self._counters["aborted"] += reason == "abort"
        request.answer.set_result(generation)

    def _answer_unstarted(self, request: Request) -> None:
        """An aborted request that never had a lane: no output, and no routes since nothing was forwarded."""
        self._counters["aborted"] += 1
        request.answer.set_result(
            Generation(
                output_ids=np.zeros(0, dtype=np.int32),
                output_logprobs=np.zeros(0, dtype=np.float32),
                routed_experts=None,
                routed_experts_start=request.routed_experts_start,
                finish_reason="abort",
                weight_version=self._version,
                output_versions=np.zeros(0, dtype=np.int32),
                cached_tokens=0,
            )
        )


def _groups(widths: np.ndarray) -> list[slice]:
    """Cut neighbouring lanes into groups that share a forward: few cells, and at most half of them padding."""
    groups, start = [], 0
    for end in range(1, len(widths) + 1):
        longest = int(widths[start : end + 1].max())
        cells = longest * (end + 1 - start)
        useful = np.maximum(widths[start : end + 1], 64).sum()  # the recurrent layers pad to 64 in any case
        if end == len(widths) or cells > _MAX_CELLS or cells > 2 * useful:
            groups.append(slice(start, end))
            start = end
    return groups
