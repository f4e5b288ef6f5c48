"""verl's `AgentLoopOutput` as a dict: prompt and response apart, mask and log-probs over the response."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from t1core.exchange.slime import row_from_sample
from t1core.exchange.span import spans_to_lists
from t1core.records import RowStatus, TrainingRow


def row_to_agent_loop(row: TrainingRow) -> dict[str, Any]:
    """A row in verl's words. `num_turns` counts the user's and the assistant's, as verl does."""
    start = len(row.tokens) - row.response_length
    return {
        "prompt_ids": row.tokens[:start],
        "response_ids": row.tokens[start:],
        "response_mask": row.loss_mask[start:],
        "response_logprobs": row.rollout_log_probs[start:],
        "routed_experts": row.rollout_routed_experts,
        "reward_score": row.reward,
        "num_turns": 2 * len(row.spans),
        "metrics": {},
        "extra_fields": {
            "rollout_id": row.rollout_id,
            "chunk": row.chunk,
            "status": str(row.status),
            "spans": spans_to_lists(row.spans),
            "token_weight_versions": row.weight_versions,
        },
    }


def row_from_agent_loop(output: Mapping[str, Any], *, rollout_id: str | None = None) -> TrainingRow:
    """An output as a training row; one weight version for all, 0, where its extra fields have none."""
    free = output.get("extra_fields") or {}
    return row_from_sample(
        {
            "tokens": np.concatenate([output["prompt_ids"], output["response_ids"]]),
            "response_length": len(output["response_ids"]),
            "loss_mask": output["response_mask"],
            "rollout_log_probs": output.get("response_logprobs"),
            "rollout_routed_experts": output.get("routed_experts"),
            "reward": output.get("reward_score"),
            "status": free.get("status", RowStatus.COMPLETED),
            "session_id": free.get("rollout_id"),
            "metadata": free,
        },
        rollout_id=rollout_id,
    )
