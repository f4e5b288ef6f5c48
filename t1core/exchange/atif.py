"""ATIF v1.7 and v1.8, out and in. The two differ in audio alone, which we neither write nor read.

Agent steps carry the call's ids and log-probs in `metrics`; ATIF has no word for finish reason, weight versions and
call ids, so they stand in `metrics.extra`. Routes do not travel.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from t1core import __version__
from t1core.exchange.call import call_from_lists
from t1core.records import ModelCall, Turn

ATIF_VERSIONS = ("ATIF-v1.7", "ATIF-v1.8")


def trajectory_to_atif(
    *,
    trial_id: str,
    task: str,
    turns: Sequence[Turn],
    calls: Mapping[str, ModelCall],
    schema_version: str = ATIF_VERSIONS[-1],
    model_name: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A trial as an ATIF document. `task` is the first user message, `calls` are by model call id."""
    _check_version(schema_version)
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": task}]
    for turn in turns:
        steps.append(_step(turn, calls[turn.model_call_id], step_id=len(steps) + 1))
    agent = {"name": "t1core", "version": __version__}
    used = [calls[turn.model_call_id] for turn in turns]
    return {
        "schema_version": schema_version,
        "session_id": trial_id,
        "trajectory_id": trial_id,
        "agent": agent | ({"model_name": model_name} if model_name else {}),
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": sum(len(call.prompt_token_ids) for call in used),
            "total_completion_tokens": sum(len(call.completion_token_ids) for call in used),
            "total_steps": len(steps),
        },
    } | ({"extra": dict(extra)} if extra else {})


def _step(turn: Turn, call: ModelCall, *, step_id: int) -> dict[str, Any]:
    step: dict[str, Any] = {
        "step_id": step_id,
        "source": "agent",
        "message": turn.response,
        "llm_call_count": 1,
        "metrics": {
            "prompt_tokens": len(call.prompt_token_ids),
            "completion_tokens": len(call.completion_token_ids),
            "prompt_token_ids": call.prompt_token_ids.tolist(),
            "completion_token_ids": call.completion_token_ids.tolist(),
            "logprobs": [float(value) for value in call.logprobs],
            "extra": {
                "model_call_id": call.model_call_id,
                "parent_call_id": call.parent_call_id,
                "finish_reason": call.finish_reason,
                "output_versions": call.output_versions.tolist(),
            },
        },
    }
    if turn.commands:
        step["tool_calls"] = [
            {
                "tool_call_id": f"{call.model_call_id}-{index}",
                "function_name": "bash_command",
                "arguments": {"keystrokes": keystrokes, "duration": duration_s},
            }
            for index, (keystrokes, duration_s) in enumerate(turn.commands)
        ]
    if turn.observation:
        step["observation"] = {"results": [{"content": turn.observation}]}
    return step


def calls_from_atif(
    document: Mapping[str, Any], *, rollout_id: str | None = None, weight_version: int = 0
) -> tuple[ModelCall, ...]:
    """The model calls of a document and of the subagents embedded in it.

    Steps copied from an earlier trajectory are left out, they were trained with it. `weight_version` is for
    documents that do not say. ValueError for another version, and for agent steps without ids or log-probs or with
    several calls lumped together.
    """
    _check_version(document.get("schema_version"))
    name = rollout_id or document.get("trajectory_id") or document.get("session_id")
    if not name:
        raise ValueError("the document has neither trajectory_id nor session_id; name the rollout")
    calls: list[ModelCall] = []
    parent = None
    for step in document["steps"]:
        if step["source"] != "agent" or step.get("is_copied_context") or step.get("llm_call_count") == 0:
            continue
        where = f"step {step['step_id']} of {document.get('trajectory_id') or name}"
        if (step.get("llm_call_count") or 1) > 1:
            raise ValueError(
                f"{where} lumps {step['llm_call_count']} calls together; their ids can't be told apart"
            )
        metrics = step.get("metrics") or {}
        said = metrics.get("extra") or {}
        call = call_from_lists(
            where=where,
            call_id=said.get("model_call_id") or f"{document.get('trajectory_id') or name}/{step['step_id']}",
            rollout_id=name,
            parent_call_id=said.get("parent_call_id", parent),
            prompt_token_ids=metrics.get("prompt_token_ids"),
            completion_token_ids=metrics.get("completion_token_ids"),
            logprobs=metrics.get("logprobs"),
            output_versions=said.get("output_versions", weight_version),
            finish_reason=said.get("finish_reason", "stop"),
        )
        calls.append(call)
        parent = call.model_call_id
    for sub in document.get("subagent_trajectories") or ():
        calls += calls_from_atif(sub, rollout_id=name, weight_version=weight_version)
    return tuple(calls)


def _check_version(found: object) -> None:
    if found not in ATIF_VERSIONS:
        raise ValueError(f"schema_version is {found!r}; this t1core speaks {' and '.join(ATIF_VERSIONS)}")
