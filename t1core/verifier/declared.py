"""What a task's own script says its work is worth: /logs/verifier/reward.json, else reward.txt, as Harbor reads them.

| the files                                         | what they mean                                     |
|---------------------------------------------------|----------------------------------------------------|
| reward.txt with one number from 0 to 1            | that                                               |
| reward.json, a flat object of such numbers        | its `reward`, or its only value                    |
| several values and none called `reward`           | 0; flagged                                         |
| both                                              | reward.json; flagged when they disagree            |
| empty, cut, no number, NaN, below 0 or above 1    | 0; flagged                                         |
| neither                                           | 0: the script never came to writing one            |
"""

import json
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True)
class Declared:
    """`reward` is from 0 to 1; `flags` say what was odd."""

    reward: float
    flags: tuple[str, ...] = ()


def read_declared(notes: bytes) -> Declared:
    """Read what the grading child noted: a JSON object of the files' texts by name. Never raises."""
    try:
        files = json.loads(notes)
        texts = {
            name: files[name] for name in ("reward.json", "reward.txt") if isinstance(files.get(name), str)
        }
    except (ValueError, AttributeError, RecursionError):
        return Declared(0.0, ("reward:unreadable",))
    values: dict[str, float] = {}
    flags: list[str] = []
    for name, text in texts.items():
        try:
            values[name] = _of_json(text) if name == "reward.json" else _number(_float(text))
        except ValueError as error:
            flags.append(f"reward:{name} {error}")
            values[name] = 0.0
    if len(set(values.values())) > 1:
        flags.append("reward:the two files disagree")
    return Declared(next(iter(values.values()), 0.0), tuple(flags))


def _of_json(text: str) -> float:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"holds {constant}")

    try:
        tree = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError:
        raise ValueError("is not whole JSON") from None
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if not isinstance(tree, dict) or not tree:
        raise ValueError("is no object of numbers")
    numbers = {str(name): _number(value) for name, value in tree.items()}
    if "reward" in numbers:
        return numbers["reward"]
    if len(numbers) > 1:
        raise ValueError("has several values and none is called reward")
    return next(iter(numbers.values()))


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("is no number" if text.strip() else "is empty") from None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("is no object of numbers")
    if not 0 <= value <= 1:  # which no NaN is, and which asks nothing of a whole number's size
        raise ValueError("is not from 0 to 1")
    return float(value)
