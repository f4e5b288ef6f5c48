"""Chat messages: what an answer's text says, and when two messages are the same.

Clients give back what they were given in other words: blanks normalised, the arguments of a tool call serialised
anew, the reasoning left out. None of that is a new history.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from t1core.rollout.chat.template import Message

_TOOL_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.S)

Key = tuple[Any, ...]  # what is compared of a message


def read_answer(text: str, *, answer_id: str, with_tools: bool) -> dict[str, Any]:
    """The assistant's message in an answer's text: content, and if there are any, reasoning_content and tool_calls.

    `<think>...</think>` is reasoning. With tools, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` is a
    call; what is no such JSON stays content.
    """
    reasoning, content = _split_reasoning(text)
    calls: list[dict[str, Any]] = []
    if with_tools:
        content = _TOOL_CALL.sub(lambda found: _take_call(found, calls, answer_id=answer_id), content)
        content = content.strip() if calls else content
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def message_key(message: Message) -> Key:
    """Equal for messages that say the same: role, words of the content, names and arguments of tool calls."""
    content = text_content(message)
    if message["role"] == "assistant":
        content = _split_reasoning(content)[1]
    calls = tuple(_call_key(call) for call in message.get("tool_calls") or ())
    return (message["role"], " ".join(content.split()), calls)


def text_content(message: Message) -> str:
    """The text of a message's content. ValueError for content that is not text."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
        return "".join(str(part["text"]) for part in content)
    raise ValueError(f"a {message['role']} message has content that is not text; this model reads text only")


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages of a request with text as their content, arguments of tool calls as objects. ValueError for
    anything else.
    """
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages is empty or no list; send at least one message")
    checked = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError(f"messages[{index}] has no role")
        one = dict(message) | {"content": text_content(message)}
        if one.get("tool_calls"):
            one["tool_calls"] = [_with_object_arguments(call) for call in one["tool_calls"]]
        checked.append(one)
    if checked[-1]["role"] == "assistant":
        raise ValueError("the last message is the assistant's; end with what it should answer")
    return checked


def tools_key(tools: Sequence[Any] | None) -> str:
    return json.dumps(tools or [], sort_keys=True)


def _split_reasoning(text: str) -> tuple[str | None, str]:
    before, found, after = text.partition("</think>")
    if not found:
        return None, text
    return before.strip().removeprefix("<think>").strip("\n"), after.lstrip("\n")


def _take_call(found: re.Match[str], calls: list[dict[str, Any]], *, answer_id: str) -> str:
    try:
        said = json.loads(found[1])
        name, arguments = said["name"], said.get("arguments", {})
    except (ValueError, KeyError):
        return found[0]
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls.append({"id": f"{answer_id}-{len(calls)}", "type": "function", "function": function})
    return ""


def _with_object_arguments(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except ValueError as error:
            raise ValueError(f"the arguments of tool call {function.get('name')!r} are not JSON") from error
    return call | {"function": function}


def _call_key(call: dict[str, Any]) -> Key:
    function = _with_object_arguments(call)["function"]
    return (function["name"], json.dumps(function.get("arguments") or {}, sort_keys=True))
