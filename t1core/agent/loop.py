"""The agent loop of one trial: prompt -> completion -> keystrokes -> screen, until a stop reason.

Ids are the history. Each call's prompt is the last prompt, the sampled ids untouched, and newly encoded context, so
every boundary is strict. What happened so far stays readable in the `AgentRecord` even when the loop is cancelled.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from t1core.agent.context import AgentLimits
from t1core.agent.prompt import Wording, limit_output
from t1core.agent.protocol import Response, parse_response
from t1core.agent.tokenizer import ChatTokenizer
from t1core.records import Generation, ModelCall, SamplingParams, StopReason, Turn
from t1core.sandbox.sandbox import Terminal

Generate = Callable[..., Awaitable[Generation]]


# A trial that runs out of time inside one model call is the engine's failure when that call alone took this share of
# the trial's time: a model cannot make a call slow (its length is capped), a stuck engine can.
STALLED_SHARE = 0.5


class GenerationAborted(Exception):
    """The engine aborted a request nobody asked to abort."""


class GenerationStalled(Exception):
    """A trial's time ran out in a model call that took most of it: the engine's failure, not the model's."""


@dataclass
class AgentRecord:
    """What a trial's loop has produced so far; times are seconds."""

    turns: list[Turn] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)
    stop_reason: StopReason | None = None
    pending_call_id: str | None = None
    pending_since: float | None = None  # monotonic clock
    generate_s: float = 0.0
    terminal_s: float = 0.0
    num_repairs: int = 0
    cached_tokens: int = 0


async def run_agent(
    record: AgentRecord,
    *,
    trial_id: str,
    instruction: str,
    terminal: Terminal,
    generate: Generate,
    tokenizer: ChatTokenizer,
    wording: Wording,
    limits: AgentLimits,
    sampling: SamplingParams,
) -> None:
    """Run the loop and fill `record`, ending with its stop reason. Engine and sandbox errors pass through.

    Raises GenerationStalled when time ran out in a model call that took at least `STALLED_SHARE` of it.
    """
    limit = asyncio.timeout(limits.timeout_s)
    try:
        async with limit:
            record.stop_reason = await _loop(
                record,
                trial_id=trial_id,
                instruction=instruction,
                terminal=terminal,
                generate=generate,
                tokenizer=tokenizer,
                wording=wording,
                limits=limits,
                sampling=sampling,
            )
    except TimeoutError:
        if not limit.expired():  # somebody else's deadline
            raise
        waited_s = 0.0 if record.pending_since is None else time.monotonic() - record.pending_since
        if waited_s >= STALLED_SHARE * limits.timeout_s:
            raise GenerationStalled(
                f"call {record.pending_call_id} had no answer after {waited_s:.1f} s of the trial's "
                f"{limits.timeout_s:g} s"
            ) from None
        record.stop_reason = StopReason.AGENT_TIMEOUT


async def _loop(
    record: AgentRecord,
    *,
    trial_id: str,
    instruction: str,
    terminal: Terminal,
    generate: Generate,
    tokenizer: ChatTokenizer,
    wording: Wording,
    limits: AgentLimits,
    sampling: SamplingParams,
) -> StopReason:
    start = time.monotonic()
    prompt = tokenizer.first_prompt(wording.first_prompt(instruction, await terminal.incremental()))
    claimed = False
    for index in range(limits.max_turns):
        if len(prompt) > limits.max_prompt_tokens:
            return StopReason.CONTEXT_FULL
        began = time.monotonic()
        call = await _call_model(
            record, prompt=prompt, trial_id=trial_id, index=index, generate=generate, sampling=sampling
        )
        generated = time.monotonic()
        text = tokenizer.decode(call.completion_token_ids)
        response = parse_response(text)
        record.num_repairs += len(response.repairs)
        observation = await _act(response, terminal=terminal, limits=limits)
        acted = time.monotonic()
        record.generate_s += generated - began
        record.terminal_s += acted - generated
        confirmed = response.task_complete and claimed
        claimed = response.task_complete
        reply = _reply(response, observation, wording)
        done = confirmed or index + 1 == limits.max_turns
        record.turns.append(
            Turn(
                index=index,
                model_call_id=call.model_call_id,
                response=text,
                commands=tuple((command.keystrokes, command.duration_s) for command in response.commands),
                is_parse_error=bool(response.errors),
                is_completion_claim=response.task_complete,
                observation="" if done else reply,
                screen=observation,
                started_s=began - start,
                generated_s=generated - start,
                ended_s=acted - start,
            )
        )
        if confirmed:
            return StopReason.COMPLETED
        closed = (
            bool(len(call.completion_token_ids)) and int(call.completion_token_ids[-1]) == tokenizer.im_end
        )
        context = tokenizer.reply(reply, closed=closed)
        prompt = np.concatenate([prompt, call.completion_token_ids, context]).astype(np.int32)
    return StopReason.MAX_TURNS


async def _call_model(
    record: AgentRecord,
    *,
    prompt: np.ndarray,
    trial_id: str,
    index: int,
    generate: Generate,
    sampling: SamplingParams,
) -> ModelCall:
    parent = record.calls[-1] if record.calls else None
    # The last sampled token of the parent was never forwarded there, so its row is the first one asked for here.
    start = 0 if parent is None else len(parent.prompt_token_ids) + len(parent.completion_token_ids) - 1
    call_id = f"{trial_id}/{index}"
    record.pending_call_id, record.pending_since = call_id, time.monotonic()
    answer = await generate(
        prompt, sampling=sampling, request_id=call_id, session_id=trial_id, routed_experts_start=start
    )
    record.pending_call_id = record.pending_since = None
    if answer.finish_reason == "abort":
        raise GenerationAborted(f"call {call_id} was aborted after {len(answer.output_ids)} tokens")
    record.cached_tokens += answer.cached_tokens
    call = ModelCall(
        model_call_id=call_id,
        rollout_id=trial_id,
        parent_call_id=parent.model_call_id if parent else None,
        prompt_token_ids=prompt,
        completion_token_ids=answer.output_ids,
        logprobs=answer.output_logprobs,
        finish_reason=answer.finish_reason,
        weight_version=answer.weight_version,
        output_versions=answer.output_versions,
        routed_experts=answer.routed_experts,
        routed_experts_start=answer.routed_experts_start,
    )
    record.calls.append(call)
    return call


async def _act(response: Response, *, terminal: Terminal, limits: AgentLimits) -> str:
    """Type the commands, waiting at most `max_wait_s` over all of them; what is left after that is typed ahead."""
    deadline = time.monotonic() + limits.max_wait_s
    for command in response.commands:
        left_s = max(0.0, deadline - time.monotonic())
        await terminal.send_keys(command.keystrokes, max_wait_s=min(command.duration_s, left_s))
    if response.errors:
        return ""
    return limit_output(await terminal.incremental(), limit_bytes=limits.output_limit_bytes)


def _reply(response: Response, observation: str, wording: Wording) -> str:
    if response.errors:
        return wording.explain_errors(response.errors)
    if response.task_complete:
        return wording.confirm_completion(observation)
    return observation
