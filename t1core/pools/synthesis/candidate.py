"""A candidate: a proposed task's files and where they come from; written as a Harbor task directory."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t1core.pools.llm.endpoint import Cost
from t1core.pools.synthesis.recipe import Recipe
from t1core.tasks.practice.render import TEST_SCRIPT, TaskFiles

_DOCKERFILE = "FROM python:3.12-slim\nWORKDIR /app\n"


@dataclass(frozen=True)
class Parent:
    """A task that others are made of. `recipe` is None for one that no recipe makes."""

    task_id: str
    directory: Path
    recipe: Recipe | None = None


@dataclass(frozen=True)
class Candidate:
    """A proposed task. `problem` says why there is none, and then there are no files. `origin` is what made it: a
    recipe, or a model with the hash of its question."""

    operator: str
    parents: tuple[str, ...]
    origin: Mapping[str, Any]
    files: TaskFiles | None = None
    problem: str = ""
    recipe: Recipe | None = None
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class Size:
    """How long a task is: lines of the solution without its head, blanks and comments; tests, and asserts in them."""

    solution_lines: int
    num_tests: int
    num_asserts: int
    instruction_chars: int


def task_files(
    *,
    instruction: str,
    files: Mapping[str, str],
    solution: str,
    tests: str,
    family: str,
    lineage: Mapping[str, Any],
    agent_timeout_s: float,
) -> TaskFiles:
    """The Harbor layout; `lineage` goes into task.toml, as metadata.lineage. `files` lie in the workspace."""
    return TaskFiles(
        {
            "instruction.md": instruction.rstrip() + "\n",
            "task.toml": _settings(family=family, lineage=lineage, agent_timeout_s=agent_timeout_s),
            "environment/Dockerfile": _DOCKERFILE + ("COPY files/ /app/\n" if files else ""),
            **{f"environment/files/{name}": text for name, text in files.items()},
            "solution/solve.sh": solution,
            "tests/test.sh": TEST_SCRIPT,
            "tests/test_outputs.py": tests,
        }
    )


def size_of(files: Mapping[str, str]) -> Size:
    """Size of a task by its files. SyntaxError for tests that do not parse."""
    tree = ast.parse(files["tests/test_outputs.py"])
    nodes = list(ast.walk(tree))
    return Size(
        solution_lines=len(work_lines(files["solution/solve.sh"])),
        num_tests=sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test") for node in nodes),
        num_asserts=sum(isinstance(node, ast.Assert) for node in nodes),
        instruction_chars=len(files["instruction.md"].strip()),
    )


def read_files(directory: Path) -> dict[str, str]:
    """The files of a task that its size and a model's question are made of."""
    names = ("instruction.md", "solution/solve.sh", "tests/test_outputs.py")
    return {name: (directory / name).read_text() for name in names}


def work_lines(script: str) -> list[int]:
    """Numbers, from 0, of a script's lines that do something: not blank, no comment, and not the change of directory
    that heads a script of ours."""
    lines = script.splitlines()
    return [
        number
        for number, line in enumerate(lines)
        if line.strip()
        and not line.lstrip().startswith("#")
        and not (number < 2 and line.startswith('cd "${'))
    ]


def _settings(*, family: str, lineage: Mapping[str, Any], agent_timeout_s: float) -> str:
    said = "\n".join(f"{name} = {json.dumps(value)}" for name, value in lineage.items())
    return f"""schema_version = "1.4"

[metadata]
family = "{family}"
split = "train"

[metadata.lineage]
{said}

[agent]
timeout_sec = {agent_timeout_s:.1f}
network_mode = "no-network"

[verifier]
timeout_sec = 60.0

[environment]
cpus = 1
memory_mb = 512
storage_mb = 64
network_mode = "no-network"
"""
