"""Terminus-2's JSON form of an answer: what is accepted, mended and refused, as Harbor 0.25 has it.

    {"analysis": ..., "plan": ..., "commands": [{"keystrokes": ..., "duration": ...}], "task_complete": ...}

The first object in the text counts; text around it is dropped. Where that object does not close or does not hold
together, two repairs are tried: missing braces are added at the end of the text, or an object inside it is taken that
is nested no deeper than one level. No other repair is made: a model must not learn here what fails under Harbor. An
answer that claims completion is never void because of its commands.
"""

import json
import re
from typing import Any

from t1core.agent.response import DEFAULT_DURATION_S, Command, Response, bounded_duration

_REQUIRED = ("analysis", "plan", "commands")
_SHALLOW_OBJECT = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", re.DOTALL)
_NO_OBJECT = "the answer holds no JSON object"
_NOT_JSON = "the JSON object is not valid"


class _Void(Exception):
    """The answer can't be used; the message says why."""


def parse_json_answer(text: str) -> Response:
    """Parse an answer. Never raises: what is wrong stands in `errors`."""
    found = _parse(text)
    if not found.errors:
        return found
    for mended, repair in _repairs(text, broken=found.errors[0].startswith((_NO_OBJECT, _NOT_JSON))):
        again = _parse(mended)
        if not again.errors:
            return Response(
                again.commands,
                again.task_complete,
                again.analysis,
                again.plan,
                (),
                (repair, *again.repairs),
                again.warnings,
            )
    return found


def _repairs(text: str, *, broken: bool) -> list[tuple[str, str]]:
    repairs = []
    missing = text.count("{") - text.count("}")
    if broken and missing > 0:
        repairs.append((text + "}" * missing, f"{missing} closing braces were added"))
    for part in _SHALLOW_OBJECT.findall(text):
        try:
            json.loads(part)
        except (json.JSONDecodeError, RecursionError):
            continue
        repairs.append((part, "an object inside the answer was taken"))
        break
    return repairs


def _parse(text: str) -> Response:
    repairs: list[str] = []
    warnings: list[str] = []
    try:
        tree = _load(text, repairs)
        _check_fields(tree, warnings)
    except _Void as reason:
        return Response(errors=(str(reason),), repairs=tuple(repairs), warnings=tuple(warnings))
    complete = tree.get("task_complete", False)
    if isinstance(complete, str):
        complete = complete.lower() in ("true", "1", "yes")
    try:
        commands, errors = _commands(tree["commands"], warnings), ()
    except _Void as reason:
        commands, errors = (), (str(reason),)
        if complete:
            warnings.append(str(reason))
            errors = ()
    return Response(
        commands,
        bool(complete) and not errors,
        str(tree["analysis"]),
        str(tree["plan"]),
        errors,
        tuple(repairs),
        tuple(warnings),
    )


def _load(text: str, repairs: list[str]) -> dict[str, Any]:
    start, end = _first_object(text)
    if end < 0:
        raise _Void(_NO_OBJECT)
    if text[:start].strip():
        repairs.append("text before the JSON object was dropped")
    if text[end:].strip():
        repairs.append("text after the JSON object was dropped")
    try:
        return json.loads(text[start:end])
    except json.JSONDecodeError as error:
        raise _Void(f"{_NOT_JSON}: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise _Void(f"{_NOT_JSON}: it is nested too deeply") from None


def _first_object(text: str) -> tuple[int, int]:
    """Start and end of the first balanced object, end -1 where there is none. Quotes count from the text's first
    character on, so an odd one before the object hides it."""
    start = -1
    depth = 0
    in_string = is_escaped = False
    for i, character in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character == '"':
            in_string = not in_string
        elif in_string:
            continue
        elif character == "{":
            if depth == 0:
                start = i
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0 and start >= 0:
                return start, i + 1
    return start, -1


def _check_fields(tree: dict[str, Any], warnings: list[str]) -> None:
    missing = [name for name in _REQUIRED if name not in tree]
    if missing:
        raise _Void(f"missing fields: {', '.join(missing)}")
    warnings += [
        f"{name!r} should be a string" for name in ("analysis", "plan") if not isinstance(tree[name], str)
    ]
    if not isinstance(tree["commands"], list):
        raise _Void("'commands' must be a list")
    order = [name for name in tree if name in _REQUIRED]
    if order != list(_REQUIRED):
        warnings.append(f"fields are expected in the order {', '.join(_REQUIRED)}, not {', '.join(order)}")
    complete = tree.get("task_complete")
    if complete is not None and not isinstance(complete, bool | str):
        warnings.append("'task_complete' should be true or false")


def _commands(items: list[Any], warnings: list[str]) -> tuple[Command, ...]:
    commands = []
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            raise _Void(f"command {number} must be an object")
        keystrokes = item.get("keystrokes")
        if not isinstance(keystrokes, str):
            raise _Void(f"command {number} needs a string 'keystrokes'")
        duration = item.get("duration")
        if not isinstance(duration, int | float):
            warnings.append(
                f"command {number} has no number as 'duration', {DEFAULT_DURATION_S:g} s is taken"
            )
            duration = DEFAULT_DURATION_S
        unknown = [name for name in item if name not in ("keystrokes", "duration")]
        if unknown:
            warnings.append(f"command {number} has unknown fields: {', '.join(unknown)}")
        if number < len(items) and keystrokes and not keystrokes.endswith("\n"):
            warnings.append(f"command {number} does not end with a newline: the next is typed behind it")
        commands.append(Command(keystrokes, bounded_duration(duration)))
    return tuple(commands)
