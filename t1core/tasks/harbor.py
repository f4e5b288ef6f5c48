"""Harbor's task layout, read into a `Task`.

instruction.md, task.toml (`task_toml.py` has its keys), environment/, tests/{test.sh,test_outputs.py},
solution/solve.sh. Harbor asks for test.sh alone; what is counted then:

| tests/ holds                                             | the tests of the task                              |
|----------------------------------------------------------|----------------------------------------------------|
| anything, and task.toml has metadata.test_names          | those                                              |
| test_outputs.py                                          | its functions                                      |
| test.sh that asks for a CTRF report, and other test files | the functions of test_*.py and *_test.py           |
| test.sh alone                                            | one: `test.sh`, worth what its reward file says    |
"""

import ast
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t1core.records.task import Task
from t1core.tasks.task_toml import DEFAULT_VERIFIER_TIMEOUT_S, TaskToml
from t1core.tasks.test_script import asks_for_report, foreign_packages, foreign_programs

TEST_FILE = "tests/test_outputs.py"
SCRIPT_TEST = "test.sh"  # the one test of a task that counts nothing but its script's word
COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml")
_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)


def load_task(directory: Path | str) -> Task:
    """Read a task directory.

    `family` is metadata.family, else metadata.category, else "unknown"; `split` is metadata.split, else
    "train". Test names are those that pytest-json-ctrf 0.6.1 reports, in file order: read from the source, or
    from metadata.test_names where the tests are parametrised. Raises ValueError naming the task and the way
    out.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ValueError(f"task {directory}: no such directory")
    instruction = without_canary(_text(directory, "instruction.md", "write what the agent is asked to do"))
    if not instruction.strip():
        raise ValueError(f"task {directory}: instruction.md is empty; write what the agent is asked to do")
    settings = TaskToml(
        _text(directory, "task.toml", "an empty file takes Harbor's defaults"), directory=directory
    )
    metadata = dict(settings.table("metadata"))
    environment = directory / "environment"
    return Task(
        task_id=directory.name,
        family=str(metadata.get("family", metadata.get("category", "unknown"))),
        split=str(metadata.get("split", "train")),
        path=directory,
        instruction=instruction,
        test_names=_test_names(directory, metadata),
        agent_timeout_s=settings.timeout_s("agent"),
        verifier_timeout_s=settings.timeout_s("verifier") or DEFAULT_VERIFIER_TIMEOUT_S,
        verifier_env=settings.env("verifier"),
        solution_env=settings.env("solution"),
        environment=settings.environment(
            has_compose=any((environment / name).is_file() for name in COMPOSE_FILES)
        ),
        metadata=metadata,
    )


def without_canary(instruction: str) -> str:
    """The instruction as an agent is shown it: without the lines at its head that mark a benchmark's files (a comment
    with the word canary) and the blank ones after them, as Harbor does."""
    lines = instruction.split("\n")
    while lines and _CANARY.fullmatch(lines[0].strip()):
        del lines[0]
    while lines and not lines[0].strip():
        del lines[0]
    return "\n".join(lines)


def test_functions(source: str) -> list[str]:
    """Names that pytest collects from a test file, in its order: `test_x`, or `TestC::test_y` for methods.

    Raises SyntaxError when it does not parse, and ValueError when names depend on parameters.
    """
    names: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name == "pytest_generate_tests" or _has_parameters(node):
                raise ValueError(f"{node.name} is parametrised")
            if node.name.startswith("test"):
                names.append(node.name)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            names += [f"{node.name}::{name}" for name in _methods(node)]
    return list(dict.fromkeys(names))


test_functions.__test__ = False  # pytest would collect it by its name


def _methods(node: ast.ClassDef) -> list[str]:
    if _has_parameters(node):
        raise ValueError(f"{node.name} is parametrised")
    if node.bases:
        raise ValueError(f"{node.name} may inherit tests")
    functions = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    if any(function.name == "__init__" for function in functions):
        return []  # pytest collects no class with a constructor
    for function in functions:
        if _has_parameters(function):
            raise ValueError(f"{node.name}.{function.name} is parametrised")
    return [function.name for function in functions if function.name.startswith("test")]


def _has_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Whether a decorator multiplies tests: pytest.mark.parametrize, or a fixture with params."""
    for decorator in node.decorator_list:
        for part in ast.walk(decorator):
            if (
                isinstance(part, ast.Attribute | ast.Name)
                and getattr(part, "attr", getattr(part, "id", "")) == "parametrize"
            ):
                return True
            if isinstance(part, ast.keyword) and part.arg == "params":
                return True
    return False


def _test_names(directory: Path, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    script = _script(directory)
    if script is None or "test_outputs.py" in script:
        _text(directory, TEST_FILE, "a task without tests cannot be graded; write them there")
    way_out = (
        f"list the names pytest-json-ctrf reports under metadata.test_names in {directory / 'task.toml'}"
    )
    declared = metadata.get("test_names")
    if declared is not None:
        if (
            not isinstance(declared, list)
            or not declared
            or not all(isinstance(name, str) for name in declared)
        ):
            raise ValueError(
                f"task {directory}: metadata.test_names must be a list of names, not {declared!r}"
            )
        if len(set(declared)) != len(declared):
            raise ValueError(f"task {directory}: metadata.test_names has a name twice")
        return tuple(declared)
    files = _test_files(directory, script)
    if not files:
        return (SCRIPT_TEST,)
    names: list[str] = []
    for file in files:
        where = file.relative_to(directory)
        try:
            names += (f"{file.name}::{name}" for name in test_functions(file.read_text()))
        except SyntaxError as error:
            raise ValueError(
                f"task {directory}: {where} line {error.lineno} does not parse: {error.msg}"
            ) from error
        except ValueError as error:
            raise ValueError(
                f"task {directory}: {error}, so its test names are not in the source; {way_out}"
            ) from error
    if not names:
        shown = files[0].relative_to(directory)
        raise ValueError(
            f"task {directory}: {shown} has no test; write functions named test_..., or {way_out}"
        )
    return tuple(names)


def _script(directory: Path) -> str | None:
    """test.sh; said is what it fetches in vain."""
    path = directory / "tests" / "test.sh"
    if not path.is_file():
        return None
    script = path.read_text()
    if packages := (*foreign_packages(script), *foreign_programs(script)):
        warnings.warn(
            f"task {directory}: tests/test.sh fetches {', '.join(packages)}: nothing can be fetched in a grade, and "
            "tests that need them fail",
            stacklevel=4,
        )
    return script


def _test_files(directory: Path, script: str | None) -> list[Path]:
    """The files whose functions are the task's tests; none when only the script's own word counts."""
    if (directory / TEST_FILE).is_file():
        return [directory / TEST_FILE]
    assert script is not None
    if not asks_for_report(script):
        return []
    found = sorted({*(directory / "tests").glob("test_*.py"), *(directory / "tests").glob("*_test.py")})
    if not found:
        raise ValueError(
            f"task {directory}: tests/test.sh asks for a CTRF report and tests/ has no test_*.py; list the names it "
            f"reports under metadata.test_names in {directory / 'task.toml'}"
        )
    return found


def _text(directory: Path, name: str, why: str) -> str:
    path = directory / name
    if not path.is_file():
        raise ValueError(f"task {directory}: {name} is missing; {why}")
    return path.read_text()
