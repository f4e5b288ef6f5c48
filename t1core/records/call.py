"""A model call: token ids in, token ids out, with what the engine knew of each token.

Field names are Harbor's for the capture and SGLang's for the request, so that adapters are renamings.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

CAPTURE_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class SamplingParams:
    """How the engine samples. Training requires temperature 1 and top-p 1 (the trainer scores that distribution)."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_token_ids: tuple[int, ...] = ()
    sampling_seed: int | None = None


@dataclass(frozen=True)
class Generation:
    """What an engine answers.

    output_ids: int32 [n], the stop token included. output_logprobs: float32 [n], log-softmax of logits / temperature
    at the sampled ids, before top-p or top-k truncation. routed_experts: uint8 or int32 [prompt + n - 1 - start, L, k],
    row j routes the j-th forwarded token counted from `routed_experts_start`; ids ascend within k. output_versions:
    int32 [n], the weight version that sampled each token.
    """

    output_ids: np.ndarray
    output_logprobs: np.ndarray
    routed_experts: np.ndarray | None
    routed_experts_start: int
    finish_reason: str  # stop | length | abort
    weight_version: int
    output_versions: np.ndarray
    cached_tokens: int


@dataclass(frozen=True)
class CopiedTurn:
    """Tokens [start, end) of a prompt repeat the text that an earlier call sampled, by the offsets of its rendering."""

    model_call_id: str
    start: int
    end: int


@dataclass(frozen=True)
class ModelCall:
    """One captured call of a trial; `routed_experts` covers rows from `routed_experts_start` (a delta after turn 1).

    `copied_turns` is the offset map of a prompt that was rendered from messages; a prompt made of ids needs none.
    """

    model_call_id: str
    rollout_id: str
    parent_call_id: str | None
    prompt_token_ids: np.ndarray
    completion_token_ids: np.ndarray
    logprobs: np.ndarray
    finish_reason: str
    weight_version: int
    output_versions: np.ndarray
    routed_experts: np.ndarray | None
    routed_experts_start: int
    copied_turns: tuple[CopiedTurn, ...] = ()
    schema_version: int = CAPTURE_SCHEMA_VERSION

    @property
    def sampled_routes_digest(self) -> str | None:
        """`routes_digest` of the rows that predict this call's sampled tokens; None without routes, or without such
        rows for all of them.
        """
        n = len(self.completion_token_ids)
        if self.routed_experts is None or not 0 < n <= len(self.routed_experts):
            return None
        return routes_digest(self.routed_experts[len(self.routed_experts) - n :])


def routes_digest(rows: np.ndarray) -> str:
    """A short fingerprint of routing rows [n, L, k] and their dtype, to find them again without storing them twice."""
    digest = hashlib.blake2b(f"{rows.dtype.str}{rows.shape}".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()
