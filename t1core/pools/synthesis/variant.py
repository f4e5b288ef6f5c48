"""The proposer with a model: it is shown one parent and asked for a harder variant, longer and with more asserts."""

import ast
import sys
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from t1core.pools.llm.answer import ask_for
from t1core.pools.llm.endpoint import ChatEndpoint, EndpointFailed, Message
from t1core.pools.llm.prompt import prompt_hash, task_text
from t1core.pools.llm.rubric import Words
from t1core.pools.synthesis.candidate import Candidate, Parent, Size, read_files, size_of, task_files
from t1core.tasks.harbor import without_canary
from t1core.tasks.practice.draw import Draw

OPERATOR = "variant"
_AGENT_TIMEOUT_S = 900.0
_RULES = """You write tasks that an agent is trained on. The agent sees the instruction and works in a terminal, in
/app, without a network. It sees neither tests nor solution. Its reward is the number of tests that pass afterwards.

Below is a task. Write a harder variant of it: a longer job that needs the skills of this one and more, with the parts
depending on each other. Rules:
- `solution` is a bash script that does the job in /app; it must have more commands than {solution_lines}.
- `tests` is a pytest file that reads what the work left in /app and imports only the standard library and pytest. Each
  requirement of the instruction has a test of its own; together they must have more than {num_asserts} asserts.
- No test may pass before anything is done, all must pass after the solution, and the order of tests must not matter.
- The instruction says all that the tests require, and nothing of how to do it.
- `files` are the workspace's files at the start, relative to /app.

Answer with one JSON object and nothing else:
{{"instruction": "...", "files": [{{"path": "a/b.txt", "text": "..."}}], "solution": "...", "tests": "...",
 "harder": "why it is harder"}}
"""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    path: Words
    text: str


class _Variant(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    instruction: Annotated[str, Field(min_length=1)]
    files: tuple[_File, ...]
    solution: Annotated[str, Field(min_length=1)]
    tests: Annotated[str, Field(min_length=1)]
    harder: Words


class VariantWriter:
    """Proposes what a model writes. A question that no answer comes to is a candidate with a problem."""

    def __init__(self, endpoint: ChatEndpoint, *, seed: int, max_retries: int, max_chars: int) -> None:
        self._endpoint, self._seed = endpoint, seed
        self._max_retries, self._max_chars = max_retries, max_chars

    async def propose(self, parents: Sequence[Parent], *, round_number: int, index: int) -> Candidate:
        """A variant of one parent, drawn from the seed."""
        draw = Draw(f"variant/{self._seed}/{round_number}/{index}")
        parent = parents[draw.number(0, len(parents) - 1)]
        size = size_of(read_files(parent.directory))
        messages = _messages(parent, size, max_chars=self._max_chars)
        origin = {"model": self._endpoint.settings.model, "prompt_hash": prompt_hash(messages)}
        try:
            answered = await ask_for(
                self._endpoint,
                messages,
                form=_Variant,
                complaint_of=lambda variant: _complaint(variant, size),
                max_retries=self._max_retries,
            )
        except EndpointFailed as failed:
            problem = f"no variant: {failed}"
            return Candidate(OPERATOR, (parent.task_id,), origin, problem=problem, cost=failed.cost)
        variant = answered.value
        files = task_files(
            instruction=variant.instruction,
            files={file.path: file.text for file in variant.files},
            solution=_script(variant.solution),
            tests=variant.tests.rstrip() + "\n",
            family=OPERATOR,
            lineage={"round": round_number, "parents": [parent.task_id], "operator": OPERATOR, **origin},
            agent_timeout_s=_AGENT_TIMEOUT_S,
        )
        origin = origin | {"harder": variant.harder}
        return Candidate(OPERATOR, (parent.task_id,), origin, files=files, cost=answered.cost)


def _messages(parent: Parent, size: Size, *, max_chars: int) -> list[Message]:
    instruction = without_canary((parent.directory / "instruction.md").read_text())
    shown = task_text(parent.directory, instruction=instruction, max_chars=max_chars)
    rules = _RULES.format(solution_lines=size.solution_lines, num_asserts=size.num_asserts)
    return [{"role": "system", "content": rules}, {"role": "user", "content": shown}]


def _complaint(variant: _Variant, parent: Size) -> str | None:
    """What keeps a variant from being tried at all."""
    for file in variant.files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts or path.as_posix() != file.path:
            return f"the path {file.path!r} is not a plain path relative to /app"
    if len({file.path for file in variant.files}) < len(variant.files):
        return "two files have the same path"
    texts = {
        "instruction.md": variant.instruction,
        "solution/solve.sh": _script(variant.solution),
        "tests/test_outputs.py": variant.tests,
    }
    try:
        size = size_of(texts)
        imported = _imports(variant.tests)
    except SyntaxError as error:
        return f"the tests do not parse: line {error.lineno}: {error.msg}"
    if size.num_tests < 1:
        return "the tests have no function named test_..."
    if size.num_asserts <= parent.num_asserts:
        return f"the tests have {size.num_asserts} asserts; more than {parent.num_asserts} are asked for"
    if size.solution_lines <= parent.solution_lines:
        return f"the solution has {size.solution_lines} commands; more than {parent.solution_lines} are asked for"
    return f"the tests import {imported[0]}, which is not there" if imported else None


def _imports(tests: str) -> list[str]:
    """Modules that a grade does not have."""
    names: list[str] = []
    for node in ast.walk(ast.parse(tests)):
        if isinstance(node, ast.Import):
            names += [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append((node.module or "").split(".")[0])
    return [name for name in names if name not in sys.stdlib_module_names and name != "pytest"]


def _script(solution: str) -> str:
    head = "" if solution.startswith("#!") else "#!/bin/bash\n"
    return head + solution.rstrip() + "\n"
