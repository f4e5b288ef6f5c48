"""What a task's tests give away: the texts they compare with, and where these stand before any work is done.

A literal in the instruction is often what the agent is asked for, and one in the workspace what it is to find, so
both are evidence to look at. Tests or a solution that lie in the workspace are a leak.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from t1core.records import Task

_SHORTEST = 4  # letters of a literal that says something
_MOST_BYTES = 1 << 20  # of a workspace file that is looked through
_LEAKED_FRAC = 0.5


@dataclass(frozen=True)
class Leakage:
    """`compared` literals of the tests; those of them `in_instruction` and `in_workspace`; and `copies`: workspace
    files that hold most lines of a test file or of the solution."""

    compared: tuple[str, ...]
    in_instruction: tuple[str, ...]
    in_workspace: tuple[str, ...]
    copies: tuple[str, ...]


def find_leakage(task: Task) -> Leakage:
    """Look through the instruction and the environment's files for what the tests and the solution hold."""
    # Data beside the tests often lies in the workspace as well, and a corrected file is much like the one it corrects.
    secrets = {
        path.relative_to(task.path).as_posix(): text
        for path, text in (*_texts(task.path / "tests"), *_texts(task.path / "solution"))
        if path.name == "solve.sh" or (path.suffix == ".py" and "def test" in text)
    }
    workspace = dict(_texts(task.path / "environment"))
    compared = tuple(
        dict.fromkeys(
            literal
            for name, text in secrets.items()
            if name.endswith(".py")
            for literal in compared_literals(text)
        )
    )
    copies = [
        f"{path.relative_to(task.path).as_posix()} holds {name}"
        for path, text in workspace.items()
        for name, secret in secrets.items()
        if _is_copied(secret, text)
    ]
    return Leakage(
        compared,
        tuple(literal for literal in compared if literal in task.instruction),
        tuple(literal for literal in compared if any(literal in text for text in workspace.values())),
        tuple(copies),
    )


def compared_literals(source: str) -> list[str]:
    """Strings that a test file compares something with, by an operator or a method such as `startswith`, in its order.
    None of a file that does not parse."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    found = []
    for node in ast.walk(tree):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            sides = (
                node.args if node.func.attr in ("startswith", "endswith", "search", "match", "count") else []
            )
        for side in sides:
            parts = side.elts if isinstance(side, ast.List | ast.Tuple | ast.Set) else [side]
            found += [
                part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
    return [text for text in dict.fromkeys(found) if len(text.strip()) >= _SHORTEST]


def _is_copied(secret: str, text: str) -> bool:
    """Whether most of a secret's telling lines stand in a text."""
    lines = {
        line.strip() for line in secret.splitlines() if len(line.strip()) >= 16 and line.strip()[0] != "#"
    }
    held = {line.strip() for line in text.splitlines()}
    return len(lines) >= 2 and len(lines & held) > _LEAKED_FRAC * len(lines)


def _texts(directory: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(directory.rglob("*")) if directory.is_dir() else ():
        if path.is_file() and path.stat().st_size <= _MOST_BYTES:
            yield path, path.read_text(errors="replace")
