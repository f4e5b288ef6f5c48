"""The agent loop of one trial: prompt -> completion -> keystrokes -> screen, until a stop reason.

Ids are the history. Each call's prompt is the last prompt, the sampled ids untouched, and newly encoded context, so
every boundary is strict. Where the budget allows for summaries, a history that has grown too long is summarised:

    ... p_i a_i | next prompt above the trigger
    p_i a_i <request> -> summary (sampled, trained)     the last call of this stream
    <task, the summary's own ids, the last observation> the first prompt of a new stream

What happened so far stays readable in the `AgentRecord` even when the loop is cancelled.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import numpy as np

from t1core.agent.context import AgentLimits
from t1core.agent.prompt import Wording
from t1core.agent.protocol import Protocol
from t1core.agent.response import Response
from t1core.agent.tokenizer import ChatTokenizer
from t1core.records import Generation, ModelCall, SamplingParams, StopReason, Turn
from t1core.sandbox.sandbox import BoxBroken, Terminal

Generate = Callable[..., Awaitable[Generation]]


# A trial that runs out of time inside one model call is the engine's failure when that call alone took this share of
# the trial's time: a model cannot make a call slow (its length is capped), a stuck engine can.
STALLED_SHARE = 0.5


class GenerationAborted(Exception):
    """The engine aborted a request nobody asked to abort."""


class GenerationStalled(Exception):
    """A trial's time ran out in a model call that took most of it: the engine's failure, not the model's."""


class _Ended(Exception):
    """The trial ends here."""

    def __init__(self, reason: StopReason) -> None:
        self.reason = reason


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
    acting_since: float | None = None  # when the last answer's commands were begun
    began: float | None = None  # monotonic clock, when the first loop began
    starts: list[int] = field(default_factory=list)  # for each loop, how many calls had been made before it
    cached_tokens: int = 0

    @property
    def num_turns(self) -> int:
        """Turns that acted, those that summarised left out."""
        return sum(not turn.is_summary for turn in self.turns)

    @property
    def num_streams(self) -> int:
        """Streams of tokens begun so far: one a loop, and one after each summary."""
        return len(self.starts) + sum(turn.is_summary for turn in self.turns)

    @property
    def num_sampled(self) -> int:
        return sum(len(call.completion_token_ids) for call in self.calls)


@dataclass(frozen=True)
class AgentInput:
    """What the loop of one trial works with. `generate` samples one answer; `limits.timeout_s` bounds the whole loop,
    and a call that time runs out in is a stalled one after `stalled_after_s` (None: `STALLED_SHARE` of that time);
    `sampling` holds for every call but for the number of new tokens, which `limits` sets."""

    trial_id: str
    instruction: str
    terminal: Terminal
    generate: Generate
    tokenizer: ChatTokenizer
    protocol: Protocol
    wording: Wording
    limits: AgentLimits
    sampling: SamplingParams
    stalled_after_s: float | None = None


async def run_agent(record: AgentRecord, given: AgentInput) -> None:
    """Run the loop and fill `record`, ending with its stop reason. Engine and sandbox errors pass through, but for a
    box that the model's own commands broke: that ends the trial like any other stop.

    A trial in several steps runs a loop for each, on one record: every loop begins a new stream of tokens, and the
    limits of turns and of sampled tokens are the record's.

    Raises GenerationStalled when time ran out in a model call that took most of it.
    """
    record.stop_reason = None
    loop = _Loop(record, given)
    limits = given.limits
    limit = asyncio.timeout(limits.timeout_s)
    try:
        async with limit:
            record.stop_reason = await loop.run()
    except TimeoutError:
        if not limit.expired():  # somebody else's deadline
            raise
        waited_s = 0.0 if record.pending_since is None else time.monotonic() - record.pending_since
        bound_s = STALLED_SHARE * limits.timeout_s if given.stalled_after_s is None else given.stalled_after_s
        if record.pending_since is not None and waited_s >= bound_s:
            raise GenerationStalled(
                f"call {record.pending_call_id} had no answer after {waited_s:.1f} s of the trial's "
                f"{limits.timeout_s:g} s"
            ) from None
        record.stop_reason = StopReason.AGENT_TIMEOUT


@dataclass(frozen=True)
class _Seen:
    """What came of one answer: the observation for the model, the terminal's part of it, the visible pane in colour,
    when it was seen, and whether a wait ran out."""

    reply: str
    screen: str
    colours: str
    at_s: float
    is_wait_expired: bool


class _Loop:
    def __init__(self, record: AgentRecord, given: AgentInput) -> None:
        self._record, self._given = record, given
        self._tokenizer, self._wording, self._limits = given.tokenizer, given.wording, given.limits
        self._observer = given.wording.observer(given.terminal)
        record.began = self._start = time.monotonic() if record.began is None else record.began
        record.starts.append(len(record.calls))

    async def run(self) -> StopReason:
        try:
            return await self._turns()
        except _Ended as end:
            return end.reason

    async def _turns(self) -> StopReason:
        screen = self._limited(await self._observer.look())
        words = self._wording.first_prompt(self._given.instruction, screen)
        prompt = self._tokenizer.first_prompt(words)
        if len(prompt) > self._limits.max_prompt_tokens:
            return StopReason.CONTEXT_FULL
        if self._record.turns:  # a step's last turn is followed by what the next step asks for
            self._record.turns[-1] = replace(self._record.turns[-1], observation=words)
        claimed = False
        for number in range(self._record.num_turns + 1, self._limits.max_turns + 1):
            began_s = self._now()
            call = await self._call(prompt, max_new_tokens=self._limits.max_new_tokens)
            generated_s = self._now()
            text = self._tokenizer.decode(call.completion_token_ids)
            response, told = self._read(text, was_cut=call.finish_reason == "length")
            try:
                seen = await self._act(response, told=told)
            except BoxBroken as broken:
                lost = _Seen("", f"[{broken}]", "", self._now(), True)
                self._note(call, text, response, lost, (began_s, generated_s), is_last=True)
                return StopReason.BOX_BROKEN
            is_confirmed = response.task_complete and claimed
            if not response.errors:  # Terminus-2 remembers a claim over an answer that it could not read
                claimed = response.task_complete
            is_last = is_confirmed or number == self._limits.max_turns
            self._note(call, text, response, seen, (began_s, generated_s), is_last=is_last)
            if is_confirmed:
                return StopReason.COMPLETED
            if not is_last:
                prompt = await self._next_prompt(call, seen)
        return StopReason.MAX_TURNS

    async def _next_prompt(self, call: ModelCall, seen: _Seen) -> np.ndarray:
        """The stream so far and the new observation, or the beginning of a new stream where that is too long."""
        prompt = self._extended(call, seen.reply)
        if len(prompt) <= self._limits.max_prompt_tokens:
            return prompt
        if self._limits.summary is None:
            raise _Ended(StopReason.CONTEXT_FULL)
        return await self._summarised(call, seen.reply)

    async def _summarised(self, last: ModelCall, observation: str) -> np.ndarray:
        budget = self._limits.summary
        assert budget is not None
        asked = self._extended(last, self._wording.summary_request)
        began_s = self._now()
        call = await self._call(asked, max_new_tokens=budget.summary)
        generated_s = self._now()
        summary = call.completion_token_ids
        text = self._tokenizer.decode(summary).strip()
        is_usable = bool(text) and call.finish_reason == "stop"
        prompt, words = self._resumed(summary if is_usable else None, observation)
        self._record.turns.append(
            Turn(
                index=len(self._record.turns),
                model_call_id=call.model_call_id,
                response=text,
                commands=(),
                is_parse_error=False,
                is_completion_claim=False,
                observation=words,
                screen="",
                started_s=began_s,
                generated_s=generated_s,
                ended_s=self._now(),
                is_summary=True,
                is_summary_lost=not is_usable,
            )
        )
        if len(prompt) > self._limits.max_prompt_tokens:
            raise _Ended(StopReason.CONTEXT_FULL)
        return prompt

    def _resumed(self, summary: np.ndarray | None, observation: str) -> tuple[np.ndarray, str]:
        """The first prompt of a new stream and its text. A long observation loses its middle, so that at least half of
        the room is left for what comes after it."""
        ids = np.zeros(0, np.int32) if summary is None else summary
        limit_bytes = self._limits.output_limit_bytes
        part = 2 + sum(turn.is_summary for turn in self._record.turns)
        shown = observation
        while True:
            before, after = self._wording.resumed_prompt(
                self._given.instruction, shown, part=part, is_summarised=summary is not None
            )
            prompt = self._tokenizer.resumed_prompt(before, ids, after)
            if len(prompt) <= self._limits.max_prompt_tokens // 2 or limit_bytes < 16:
                return prompt, before + self._tokenizer.decode(ids) + after
            limit_bytes //= 2
            shown = self._wording.limit_output(observation, limit_bytes=limit_bytes)

    def _extended(self, call: ModelCall, text: str) -> np.ndarray:
        """The call's prompt, what it sampled, and a new user message: a strict extension."""
        sampled = call.completion_token_ids
        is_closed = bool(len(sampled)) and int(sampled[-1]) == self._tokenizer.im_end
        context = self._tokenizer.reply(text, closed=is_closed)
        return np.concatenate([call.prompt_token_ids, sampled, context]).astype(np.int32)

    async def _call(self, prompt: np.ndarray, *, max_new_tokens: int) -> ModelCall:
        record = self._record
        if self._limits.max_sampled_tokens is not None:
            max_new_tokens = min(max_new_tokens, self._limits.max_sampled_tokens - record.num_sampled)
            if max_new_tokens < 1:
                raise _Ended(StopReason.MAX_TOKENS)
        parent = record.calls[-1] if record.calls else None
        starts_stream = len(record.calls) == record.starts[-1] or record.turns[-1].is_summary
        assert parent is not None or starts_stream
        # The last sampled token of the parent was never forwarded there, so its row is the first one asked for here.
        start = 0 if starts_stream else len(parent.prompt_token_ids) + len(parent.completion_token_ids) - 1
        call_id = f"{self._given.trial_id}/{len(record.calls)}"
        record.pending_call_id, record.pending_since = call_id, time.monotonic()
        answer = await self._given.generate(
            prompt,
            sampling=replace(
                self._given.sampling, max_new_tokens=max_new_tokens, sampling_seed=self._stream_seed()
            ),
            request_id=call_id,
            session_id=self._given.trial_id,
            routed_experts_start=start,
        )
        record.generate_s += time.monotonic() - record.pending_since
        record.pending_call_id = record.pending_since = None
        if answer.finish_reason == "abort":
            raise GenerationAborted(f"call {call_id} was aborted after {len(answer.output_ids)} tokens")
        record.cached_tokens += answer.cached_tokens
        call = ModelCall(
            model_call_id=call_id,
            rollout_id=self._given.trial_id,
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

    def _stream_seed(self) -> int | None:
        """The trial's seed, and another one for each stream after the first: positions begin anew there, and a draw is
        a function of seed and position."""
        stream = self._record.num_streams - 1
        seed = self._given.sampling.sampling_seed
        if seed is None or not stream:
            return seed
        digest = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1

    def _read(self, text: str, *, was_cut: bool) -> tuple[Response, str | None]:
        """The answer, and what the model is told of it instead of the terminal where it was cut off and is void."""
        response = self._given.protocol.parse(text)
        if not was_cut:
            return response, None
        told = self._wording.explain_length(
            max_new_tokens=self._limits.max_new_tokens, warnings=response.warnings
        )
        return (response, None) if told is None else (Response(errors=(told,)), told)

    async def _act(self, response: Response, *, told: str | None) -> _Seen:
        """Type the commands, waiting at most `max_wait_s` over all of them; what is left after that is typed ahead."""
        began = self._record.acting_since = time.monotonic()
        deadline = began + self._limits.max_wait_s
        was_idle = True
        for command in response.commands:
            left_s = max(0.0, deadline - time.monotonic())
            asked_s = left_s if self._limits.waits_until_idle else command.duration_s
            was_idle &= await self._given.terminal.send_keys(
                command.keystrokes, max_wait_s=min(asked_s, left_s)
            )
        if response.errors:
            screen = colours = ""
            reply = told or self._wording.explain_errors(response.errors, response.warnings)
        else:
            screen = self._limited(await self._observer.look())
            colours = await self._given.terminal.colours()
            reply = (
                self._wording.confirm_completion(screen)
                if response.task_complete
                else self._wording.mention_warnings(
                    response.warnings, screen, limit_bytes=self._limits.output_limit_bytes
                )
            )
        self._record.terminal_s += time.monotonic() - began
        return _Seen(reply, screen, colours, self._now(), not was_idle)

    def _note(
        self,
        call: ModelCall,
        text: str,
        response: Response,
        seen: _Seen,
        times_s: tuple[float, float],
        *,
        is_last: bool,
    ) -> None:
        self._record.turns.append(
            Turn(
                index=len(self._record.turns),
                model_call_id=call.model_call_id,
                response=text,
                commands=tuple((command.keystrokes, command.duration_s) for command in response.commands),
                is_parse_error=bool(response.errors),
                is_completion_claim=response.task_complete,
                observation="" if is_last else seen.reply,
                screen=seen.screen,
                started_s=times_s[0],
                generated_s=times_s[1],
                ended_s=seen.at_s,
                repairs=response.repairs,
                is_wait_expired=seen.is_wait_expired,
                colours=seen.colours,
            )
        )

    def _limited(self, text: str) -> str:
        return self._wording.limit_output(text, limit_bytes=self._limits.output_limit_bytes)

    def _now(self) -> float:
        return time.monotonic() - self._start
