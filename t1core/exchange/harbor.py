"""Harbor's `rollout_details` (a trial's result.json with `collect_rollout_details`), in.

A detail is a conversation: lists with an entry a turn, prompts whole. The first is the agent's own, others are
sub-calls such as summaries. Harbor appends to the lists independently, so a turn without ids or log-probs would
shift all turns behind it: lists of unequal length are refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from t1core.exchange.call import call_from_lists
from t1core.records import ModelCall

_LISTS = ("prompt_token_ids", "completion_token_ids", "logprobs")


def calls_from_rollout_details(
    details: Sequence[Mapping[str, Any]], *, rollout_id: str, weight_version: int = 0
) -> tuple[ModelCall, ...]:
    """The model calls of all conversations, one after another. `extra["routed_experts"]`, an entry a turn, are routes
    of the whole turn. ValueError for details whose lists do not go together.
    """
    calls = []
    for index, detail in enumerate(details):
        lengths = {name: len(detail.get(name) or ()) for name in _LISTS}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{number} {name}" for name, number in lengths.items())
            raise ValueError(f"rollout detail {index} has {told}: its turns can't be told apart")
        routes = (detail.get("extra") or {}).get("routed_experts") or [None] * lengths["prompt_token_ids"]
        parent = None
        for turn, rows in enumerate(routes):
            call = call_from_lists(
                where=f"turn {turn} of rollout detail {index}",
                call_id=f"{rollout_id}/{index}.{turn}",
                rollout_id=rollout_id,
                parent_call_id=parent,
                output_versions=weight_version,
                routed_experts=rows,
                **{name: detail[name][turn] for name in _LISTS},
            )
            calls.append(call)
            parent = call.model_call_id
    return tuple(calls)
