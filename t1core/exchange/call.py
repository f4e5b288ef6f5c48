"""A model call from lists of numbers that somebody else wrote, checked before it is believed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from t1core.records import ModelCall


def call_from_lists(
    *,
    where: str,
    call_id: str,
    rollout_id: str,
    parent_call_id: str | None,
    prompt_token_ids: Sequence[int] | None,
    completion_token_ids: Sequence[int] | None,
    logprobs: Sequence[float] | None,
    output_versions: Sequence[int] | int,
    finish_reason: str = "stop",
    routed_experts: Any = None,
    routed_experts_start: int = 0,
) -> ModelCall:
    """`where` names the place for messages. `output_versions` may be one version for all sampled tokens.

    ValueError where ids or log-probs are missing or do not go together.
    """
    for name, given in (
        ("prompt_token_ids", prompt_token_ids),
        ("completion_token_ids", completion_token_ids),
        ("logprobs", logprobs),
    ):
        if given is None:
            raise ValueError(f"{where} has no {name}; have the harness collect token ids and log-probs")
    assert prompt_token_ids is not None and completion_token_ids is not None and logprobs is not None
    n = len(completion_token_ids)
    if len(logprobs) != n:
        raise ValueError(f"{where} has {n} completion_token_ids and {len(logprobs)} logprobs")
    versions = np.full(n, output_versions) if isinstance(output_versions, int) else np.array(output_versions)
    if len(versions) != n:
        raise ValueError(f"{where} has {n} completion_token_ids and {len(versions)} output_versions")
    return ModelCall(
        model_call_id=call_id,
        rollout_id=rollout_id,
        parent_call_id=parent_call_id,
        prompt_token_ids=np.array(prompt_token_ids, dtype=np.int32),
        completion_token_ids=np.array(completion_token_ids, dtype=np.int32),
        logprobs=np.array(logprobs, dtype=np.float32),
        finish_reason=finish_reason,
        weight_version=int(versions[-1]) if n else 0,
        output_versions=versions.astype(np.int32),
        routed_experts=None if routed_experts is None else compact_routes(routed_experts, where=where),
        routed_experts_start=routed_experts_start,
    )


def compact_routes(routes: Any, *, where: str) -> np.ndarray:
    """Nested lists or an array [n, L, k] in the smallest dtype that holds its ids."""
    array = np.asarray(routes)
    if array.ndim != 3 or array.dtype.kind not in "iu" or (array.size and array.min() < 0):
        raise ValueError(f"{where}: routed experts are not expert ids [rows, layers, k]")
    return array.astype(np.min_scalar_type(int(array.max())) if array.size else np.uint8)
