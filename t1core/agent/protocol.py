"""Terminus-2's JSON protocol: what a model may answer, and how near misses are repaired (and counted).

A response is one JSON object with the strings `analysis` and `plan`, a list `commands` of {keystrokes, duration}, and
optionally `task_complete`. Repairs follow Terminus-2: text around the object is dropped, missing closing braces are
added. A response that still does not parse costs a turn and is answered with what was wrong.
"""

import json
from dataclasses import dataclass
from typing import Any

DEFAULT_DURATION_S = 1.0
MAX_DURATION_S = 60.0


@dataclass(frozen=True)
class Command:
    """Keystrokes to send, and how long to wait for them at most, in seconds."""

    keystrokes: str
    duration_s: float = DEFAULT_DURATION_S


@dataclass(frozen=True)
class Response:
    """A parsed response. `errors` make it void; `repairs` name what was mended."""

    commands: tuple[Command, ...] = ()
    task_complete: bool = False
    analysis: str = ""
    plan: str = ""
    errors: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()


def parse_response(text: str) -> Response:
    """Parse a model's answer. Never raises: what is wrong stands in `errors`."""
    repairs: list[str] = []
    tree = _load_object(text, repairs)
    if tree is None:
        return Response(errors=("the response holds no valid JSON object",), repairs=tuple(repairs))
    errors = [f"missing field {name!r}" for name in ("analysis", "plan", "commands") if name not in tree]
    errors += [
        f"{name!r} must be a string"
        for name in ("analysis", "plan")
        if not isinstance(tree.get(name, ""), str)
    ]
    commands = _commands(tree.get("commands", []), errors)
    complete = tree.get("task_complete", False)
    if isinstance(complete, str):
        complete = complete.strip().lower() in ("true", "1", "yes")
    if errors:
        return Response(errors=tuple(errors), repairs=tuple(repairs))
    return Response(commands, bool(complete), tree["analysis"], tree["plan"], (), tuple(repairs))


def render_response(
    commands: tuple[Command, ...], *, analysis: str, plan: str, task_complete: bool = False
) -> str:
    """The canonical form of a response: what demonstrations are written in."""
    tree: dict[str, Any] = {"analysis": analysis, "plan": plan}
    tree["commands"] = [{"keystrokes": item.keystrokes, "duration": item.duration_s} for item in commands]
    if task_complete:
        tree["task_complete"] = True
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))


def _load_object(text: str, repairs: list[str]) -> dict[str, Any] | None:
    candidate = text.strip()
    tree = _try_json(candidate)
    if tree is not None:
        return tree
    start = candidate.find("{")
    if start < 0:
        return None
    end = _object_end(candidate, start)
    if end is not None:
        tree = _try_json(candidate[start:end])
        if tree is not None:
            repairs.append("text around the JSON object was dropped")
        return tree
    closers = _missing_closers(candidate[start:])
    tree = _try_json(candidate[start:] + closers)
    if tree is not None:
        repairs.append(f"closing {closers!r} was added")
    return tree


def _try_json(text: str) -> dict[str, Any] | None:
    try:
        tree = json.loads(text, strict=False)
    except (json.JSONDecodeError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def _scan(text: str, start: int = 0) -> tuple[int | None, list[str], bool]:
    """Walk JSON text: (index after the first complete object, open brackets at the end, whether inside a string)."""
    stack: list[str] = []
    in_string = escaped = False
    for i in range(start, len(text)):
        character = text[i]
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "{[":
            stack.append("}" if character == "{" else "]")
        elif character in "}]":
            if not stack or stack.pop() != character:
                return None, [], False
            if not stack:
                return i + 1, [], False
    return None, stack, in_string


def _object_end(text: str, start: int) -> int | None:
    return _scan(text, start)[0]


def _missing_closers(text: str) -> str:
    _, stack, in_string = _scan(text)
    return ('"' if in_string else "") + "".join(reversed(stack))


def _commands(items: Any, errors: list[str]) -> tuple[Command, ...]:
    if not isinstance(items, list):
        errors.append("'commands' must be a list")
        return ()
    commands = []
    for i, item in enumerate(items, start=1):
        if not isinstance(item, dict) or not isinstance(item.get("keystrokes"), str):
            errors.append(f"command {i} needs a string 'keystrokes'")
            continue
        duration = item.get("duration", DEFAULT_DURATION_S)
        if (
            isinstance(duration, bool)
            or not isinstance(duration, int | float)
            or not 0 <= duration < float("inf")
        ):
            duration = DEFAULT_DURATION_S
        commands.append(Command(item["keystrokes"], min(float(duration), MAX_DURATION_S)))
    return tuple(commands)
