"""slime's `Sample` as its `to_dict` writes it: mask and log-probs over the response, routes over all tokens but one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from t1core.exchange.call import compact_routes
from t1core.exchange.span import spans_from, spans_to_lists, versions_from
from t1core.records import RowStatus, TrainingRow


def row_to_sample(row: TrainingRow) -> dict[str, Any]:
    """A row as the dict that `Sample.from_dict` takes; arrays become lists when it is written."""
    response = slice(len(row.tokens) - row.response_length, None)
    return {
        "tokens": row.tokens,
        "response_length": row.response_length,
        "loss_mask": row.loss_mask[response],
        "rollout_log_probs": row.rollout_log_probs[response],
        "rollout_routed_experts": row.rollout_routed_experts,
        "weight_versions": [str(row.weight_versions[span.end - 1]) for span in row.spans],
        "reward": row.reward,
        "status": str(row.status),
        "session_id": row.rollout_id,
        "metadata": {
            "chunk": row.chunk,
            "spans": spans_to_lists(row.spans),
            "token_weight_versions": row.weight_versions,
        },
    }


def row_from_sample(sample: Mapping[str, Any], *, rollout_id: str | None = None) -> TrainingRow:
    """A sample as a training row. ValueError for one without log-probs, a reward that is a number, or a name, for one
    of unequal lengths, and for one that slime itself would not train.

    Without a loss mask the whole response was sampled, as slime takes it.
    """
    name = rollout_id or sample.get("session_id")
    if not name:
        raise ValueError("the sample has no session_id; name the rollout")
    n, response_length = len(sample["tokens"]), int(sample["response_length"])
    if sample.get("rollout_log_probs") is None or sample.get("reward") is None:
        raise ValueError(f"sample {name} has no rollout_log_probs or no reward; it can't be trained")
    if not isinstance(sample["reward"], int | float):
        raise ValueError(
            f"the reward of sample {name} is {sample['reward']!r}; put the number to train on in its place"
        )
    if sample.get("remove_sample"):
        raise ValueError(f"sample {name} has remove_sample set, so slime trains none of it; leave it out")
    mask = sample.get("loss_mask")
    loss_mask = _over_all(np.ones(response_length) if mask is None else mask, n, response_length, np.uint8)
    free = sample.get("metadata") or {}
    chunk = int(free.get("chunk", 0))
    spans = spans_from(free, loss_mask=loss_mask, rollout_id=name, chunk=chunk)
    routes = sample.get("rollout_routed_experts")
    logprobs = _over_all(sample["rollout_log_probs"], n, response_length, np.float32)
    return TrainingRow(
        rollout_id=name,
        chunk=chunk,
        tokens=np.asarray(sample["tokens"], dtype=np.int32),
        response_length=response_length,
        loss_mask=loss_mask,
        rollout_log_probs=np.where(loss_mask == 1, logprobs, 0).astype(np.float32),
        rollout_routed_experts=None if routes is None else compact_routes(routes, where=f"sample {name}"),
        weight_versions=versions_from(
            free, sample.get("weight_versions") or ["0"], loss_mask=loss_mask, spans=spans
        ),
        reward=float(sample["reward"]),
        status=RowStatus(sample["status"]),
        spans=spans,
    )


def _over_all(values: Any, n: int, response_length: int, dtype: Any) -> np.ndarray:
    """An array over the response as one over all n tokens, 0 before."""
    if len(values) != response_length:
        raise ValueError(f"{len(values)} values for a response of {response_length} tokens")
    return np.concatenate([np.zeros(n - response_length), values]).astype(dtype)
