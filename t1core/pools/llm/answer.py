"""An answer of a given form: one JSON object, checked, asked for again with the complaint, at most so often."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from t1core.pools.llm.endpoint import ChatEndpoint, Cost, EndpointFailed, FailureKind, Message

_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_MAX_REPEATED = 2000  # characters of a wrong answer that its author is shown again
_MAX_COMPLAINT = 600


@dataclass(frozen=True)
class Answered[T: BaseModel]:
    """A valid answer and what it cost, calls in vain included."""

    value: T
    cost: Cost


class _Wrong(Exception):
    def __init__(self, complaint: str, *, kind: FailureKind) -> None:
        super().__init__(complaint)
        self.kind = kind


async def ask_for[T: BaseModel](
    endpoint: ChatEndpoint,
    messages: Sequence[Message],
    *,
    form: type[T],
    complaint_of: Callable[[T], str | None],
    max_retries: int,
) -> Answered[T]:
    """Ask until an answer has the form and `complaint_of` finds no fault with it, at most `max_retries` more times.

    Raises EndpointFailed, with the last failure's kind and the cost of all.
    """
    asked, cost = list(messages), Cost()
    async with endpoint.conversation() as conversation:
        for number in range(max_retries + 1):
            try:
                reply = await endpoint.ask(asked, conversation=conversation, schema=form.model_json_schema())
            except EndpointFailed as failed:
                raise EndpointFailed(str(failed), kind=failed.kind, cost=cost + failed.cost) from failed
            cost += reply.cost
            try:
                return Answered(
                    _read(reply.text, is_cut=reply.finish_reason == "length", form=form, check=complaint_of),
                    cost,
                )
            except _Wrong as wrong:
                cost += Cost(failures={wrong.kind: 1})
                if number == max_retries:
                    raise EndpointFailed(
                        f"no valid answer in {number + 1}: {wrong}", kind=wrong.kind, cost=cost
                    ) from wrong
                asked += [
                    {"role": "assistant", "content": reply.text[:_MAX_REPEATED]},
                    {"role": "user", "content": _again(str(wrong))},
                ]
    raise AssertionError("unreachable")


def find_object(text: str) -> str:
    """The text of the first JSON object in an answer, whatever stands around it. ValueError when there is none,
    EOFError when it ends too early."""
    body = _THOUGHT.sub("", text)
    start = body.find("{")
    if start < 0:
        raise ValueError("there is no JSON object in the answer")
    try:
        _, end = json.JSONDecoder().raw_decode(body, start)
    except json.JSONDecodeError as error:
        unfinished = error.pos >= len(body.rstrip()) or error.msg.startswith("Unterminated")
        if unfinished:
            raise EOFError("the JSON object ends too early") from error
        raise ValueError(f"the JSON object does not parse: {error.msg} at character {error.pos}") from error
    except RecursionError:
        raise ValueError("the JSON object is nested too deeply") from None
    return body[start:end]


def _read[T: BaseModel](text: str, *, is_cut: bool, form: type[T], check: Callable[[T], str | None]) -> T:
    try:
        value = form.model_validate_json(find_object(text))
    except EOFError as error:
        raise _Wrong(f"{error}; answer more briefly", kind=FailureKind.CUT) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _Wrong(
            f"{error.error_count()} fields are wrong, the first: {where}: {first['msg']}",
            kind=FailureKind.INVALID,
        ) from error
    except ValueError as error:
        raise _Wrong(str(error), kind=FailureKind.CUT if is_cut else FailureKind.NO_JSON) from error
    if complaint := check(value):
        raise _Wrong(complaint, kind=FailureKind.INVALID)
    return value


def _again(complaint: str) -> str:
    return (
        f"That answer cannot be used: {complaint[:_MAX_COMPLAINT]}. Answer again with one JSON object of the form "
        "asked for, and nothing else."
    )
