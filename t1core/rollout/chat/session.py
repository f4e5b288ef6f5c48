"""A session: one conversation of a foreign harness, its captured calls, and the prompts of its next ones.

    messages = a history this session has seen + an answer it gave + something new ?
        yes:  prompt = the ids of that history, the sampled ids untouched, and the new messages encoded   (strict)
        no:   prompt = all messages rendered and encoded                                     (a new beginning)

The longest such history wins, so a client may roll back as far as it likes, to the empty history too. With history
"rendered" every prompt is rendered whole, as a plain chat server does; the places of earlier answers in it are kept,
and the assembler finds how its turns continue each other.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from t1core.records import CopiedTurn, Generation, ModelCall, SamplingParams
from t1core.rollout.chat.message import Key, message_key, read_answer, tools_key
from t1core.rollout.chat.template import ChatFormat, Message

History = Literal["tokens", "rendered"]
Generate = Callable[..., Awaitable[Generation]]


@dataclass(frozen=True)
class Answered:
    """One answer a session gave: the messages it answered, itself, as compared; and the captured call."""

    tools: str
    keys: tuple[Key, ...]
    call: ModelCall

    def is_prefix_of(self, keys: Sequence[Key]) -> bool:
        return len(keys) > len(self.keys) and all(a == b for a, b in zip(self.keys, keys, strict=False))


@dataclass(frozen=True)
class Prompt:
    """A call's prompt: ids int32 [n], the call it continues, and where rows of routes are needed from."""

    ids: np.ndarray
    parent: ModelCall | None
    routed_experts_start: int
    copied_turns: tuple[CopiedTurn, ...]


@dataclass(frozen=True)
class Answer:
    """What a client is told. `message` is None when the engine aborted the request: the client should ask again."""

    call: ModelCall
    message: dict[str, Any] | None
    cached_tokens: int


class Session:
    """The state of one conversation. `calls` are in the order they were asked for."""

    def __init__(self, session_id: str, *, chat: ChatFormat, history: History) -> None:
        self.session_id = session_id
        self._chat = chat
        self._history = history
        self._answered: list[Answered] = []
        self._calls: dict[int, ModelCall] = {}
        self._num_asked = 0

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return tuple(self._calls[index] for index in sorted(self._calls))

    def prompt(self, messages: Sequence[Message], *, tools: Sequence[Any] | None) -> Prompt:
        """The prompt of the next call. UnusableTemplate when the template can't render the messages."""
        parent = self._longest(messages, tools=tools)
        if self._history == "rendered":
            return self._rendered(messages, parent=parent, tools=tools)
        if parent is None:
            ids = self._chat.render(messages, tools=tools).ids
            return Prompt(ids, None, routed_experts_start=0, copied_turns=())
        call = parent.call
        new = self._chat.after_answer(messages, len(parent.keys) - 1, tools=tools).ids
        if self._is_closed(call) and len(new) and new[0] == call.completion_token_ids[-1]:
            new = new[1:]  # the model sampled the end of its message itself
        history = np.concatenate([call.prompt_token_ids, call.completion_token_ids])
        # the last sampled token was not forwarded yet, so its row is the first one needed
        return Prompt(
            np.concatenate([history, new]).astype(np.int32),
            call,
            routed_experts_start=len(history) - 1,
            copied_turns=(),
        )

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        prompt: Prompt,
        tools: Sequence[Any] | None,
        sampling: SamplingParams,
        generate: Generate,
    ) -> Answer:
        """Have the engine answer, and capture the call. Engine errors pass through; nothing is captured then."""
        index = self._num_asked
        self._num_asked += 1
        call_id = f"{self.session_id}/{index}"
        made = await generate(
            prompt.ids,
            sampling=sampling,
            request_id=call_id,
            session_id=self.session_id,
            routed_experts_start=prompt.routed_experts_start,
        )
        call = ModelCall(
            model_call_id=call_id,
            rollout_id=self.session_id,
            parent_call_id=prompt.parent.model_call_id if prompt.parent else None,
            prompt_token_ids=prompt.ids,
            completion_token_ids=made.output_ids,
            logprobs=made.output_logprobs,
            finish_reason=made.finish_reason,
            weight_version=made.weight_version,
            output_versions=made.output_versions,
            routed_experts=made.routed_experts,
            routed_experts_start=made.routed_experts_start,
            copied_turns=prompt.copied_turns,
        )
        self._calls[index] = call
        if made.finish_reason == "abort":
            return Answer(call, None, made.cached_tokens)
        text = self._chat.text_of(self._chat.answer_ids(made.output_ids))
        message = read_answer(text, answer_id=call_id, with_tools=bool(tools))
        keys = (*map(message_key, messages), message_key(message))
        self._answered.append(Answered(tools_key(tools), keys, call))
        return Answer(call, message, made.cached_tokens)

    def _longest(self, messages: Sequence[Message], *, tools: Sequence[Any] | None) -> Answered | None:
        """The longest answered history that these messages go on from; of equal ones the latest."""
        keys, same_tools = [message_key(message) for message in messages], tools_key(tools)
        found = [one for one in self._answered if one.tools == same_tools and one.is_prefix_of(keys)]
        return max(reversed(found), key=lambda one: len(one.keys), default=None)

    def _rendered(
        self, messages: Sequence[Message], *, parent: Answered | None, tools: Sequence[Any] | None
    ) -> Prompt:
        whole = self._chat.render(messages, tools=tools)
        copied: tuple[CopiedTurn, ...] = ()
        if parent is not None:
            # the answer's text ends where what follows it begins
            after = self._chat.after_answer(messages, len(parent.keys) - 1, tools=tools).text
            text = self._chat.text_of(self._chat.answer_ids(parent.call.completion_token_ids))
            end = len(whole.text) - len(after)
            if text and whole.text[:end].endswith(text):
                place = whole.tokens_of(end - len(text), end)
                if place is not None:
                    copied = (CopiedTurn(parent.call.model_call_id, *place),)
        return Prompt(whole.ids, parent.call if parent else None, routed_experts_start=0, copied_turns=copied)

    def _is_closed(self, call: ModelCall) -> bool:
        return len(self._chat.answer_ids(call.completion_token_ids)) < len(call.completion_token_ids)
