"""The engine contract: token ids in, token ids out, with what the engine knew of every token it forwarded.

Method and field names are SGLang's, so that the client of a real SGLang server is a renaming and the embedded
engine is a drop-in. Which distribution the log-probs describe: `log_softmax(logits / temperature)` at the
sampled ids, taken *before* top-k or top-p cut anything away; a greedy request (temperature 0) reports the
distribution at temperature 1.

What a caller may rely on:
- every sampled token comes back, the stop token included, and each with the weight version that sampled it;
- row j of the routes belongs to the j-th forwarded token; the last sampled token was never forwarded and has
  no row;
- an aborted request answers with what it has so far, rows and log-probs cut at the same place;
- no state computed under one weight version is ever used to start a request under another.
"""

from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from t1core.records import Generation, SamplingParams

PauseMode = Literal["abort", "in_place"]


class EngineDead(RuntimeError):
    """The engine is gone (crashed or closed). Nothing it held can be had back; the request may go to another
    engine.
    """


class EngineRefused(ValueError):
    """The request or the control call can't be served as asked; the message names the field, its value and
    the way out.
    """


@runtime_checkable
class Engine(Protocol):
    """One inference engine. All methods raise `EngineDead` once it has died."""

    async def generate(
        self,
        input_ids: np.ndarray,
        *,
        sampling: SamplingParams,
        request_id: str,
        session_id: str | None = None,
        routed_experts_start: int = 0,
    ) -> Generation:
        """Sample a continuation of `input_ids` (int32 [prompt]).

        `request_id` is unique among live requests. The random draw of a token depends on the sampling seed and the
        token's position in the sequence alone, whatever runs beside it; without a seed, on the request's id and the
        position. Requests of one `session_id` reuse the state of the longest thing the session has
        forwarded when the new prompt strictly extends it. `routed_experts_start` in [0, prompt]: rows before
        it are left out.

        Returns a `Generation`; finish_reason `abort` with no output and `routed_experts` None means it never
        started. Raises EngineRefused for an empty prompt, ids outside the vocabulary, or a length past the
        engine's context.
        """
        ...

    async def pause_generation(self, mode: PauseMode = "abort") -> None:
        """Stop sampling. `abort` ends every request with its partial answer; `in_place` freezes them, to go
        on with their state as it is. New requests wait until `continue_generation` in both.
        """
        ...

    async def continue_generation(self) -> None:
        """Undo a pause. No effect when not paused."""
        ...

    async def abort_request(self, request_id: str) -> bool:
        """End one request with its partial answer. False when it is not known (it may just have finished)."""
        ...

    async def flush_cache(self) -> None:
        """Drop every kept session state. Raises EngineRefused while requests are live."""
        ...

    async def update_weights(self, version: int, tensors: dict[str, np.ndarray]) -> str:
        """Load Hugging Face named tensors (all of them), cast to the engine's dtype, and become `version`.

        Drops all kept state. Raises EngineRefused while requests are live and generation is not paused, and
        for names, shapes or values that don't fit; nothing is changed then. Returns a checksum over the
        tensors as stored.
        """
        ...

    async def release_session(self, session_id: str) -> None:
        """Forget a session's state. No effect when there is none."""
        ...

    async def health(self) -> dict[str, Any]:
        """Answered by the very loop that samples, so an answer means that the loop turns. Keys:
        `weight_version`, `num_running`, `num_waiting`, `num_sessions`, `cached_tokens`, `is_paused`, and
        counters since the start.
        """
        ...

    async def close(self) -> None:
        """Stop. Live requests raise EngineDead. Safe to call twice."""
        ...
