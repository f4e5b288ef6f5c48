"""What an answer of the model is, whatever form it came in; and its canonical JSON form."""

import json
import math
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
    """A parsed answer. `errors` make it void: nothing is typed. `repairs` name what was mended to make sense of it,
    `warnings` what was odd and let pass."""

    commands: tuple[Command, ...] = ()
    task_complete: bool = False
    analysis: str = ""
    plan: str = ""
    errors: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def bounded_duration(value: float) -> float:
    """A wait in seconds that can be waited: NaN is the default, anything else between 0 and Terminus-2's cap."""
    return DEFAULT_DURATION_S if math.isnan(value) else min(max(float(value), 0.0), MAX_DURATION_S)


def render_response(
    commands: tuple[Command, ...], *, analysis: str, plan: str, task_complete: bool = False
) -> str:
    """The canonical form of a response: what demonstrations are written in."""
    tree: dict[str, Any] = {"analysis": analysis, "plan": plan}
    tree["commands"] = [{"keystrokes": item.keystrokes, "duration": item.duration_s} for item in commands]
    if task_complete:
        tree["task_complete"] = True
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
