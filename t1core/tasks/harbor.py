"""Harbor's task layout, read into a `Task`.

instruction.md, task.toml (`task_toml.py` has its keys), environment/, tests/{test.sh,test_outputs.py},
solution/solve.sh. Harbor asks for test.sh alone; what is counted then:

| tests/ holds                                             | the tests of the task                              |
|----------------------------------------------------------|----------------------------------------------------|
| anything, and task.toml has metadata.test_names          | those                                              |
| test_outputs.py                                          | its functions                                      |
| test.sh that asks for a CTRF report, and other test files | the functions of test_*.py and *_test.py           |
| test.sh alone                                            | one: `test.sh`, worth what its reward file says    |

A task in several steps ([[steps]]) has steps/<name>/{instruction.md,tests/,workdir/,solution/} instead: a step's tests
lie over those of the task, and count as above.
"""

import ast
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from t1core.records.task import Artifact, SeparateTests, Task, TaskEnvironment
from t1core.tasks.task_toml import StepToml, TaskToml
from t1core.tasks.test_script import asks_for_report, foreign_packages, foreign_programs

TEST_FILE = PurePosixPath("tests/test_outputs.py")
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
    settings = TaskToml(
        _text(directory, "task.toml", "an empty file takes Harbor's defaults"), directory=directory
    )
    metadata = dict(settings.metadata)
    environment = directory / "environment"
    asked = settings.environment(has_compose=any((environment / name).is_file() for name in COMPOSE_FILES))
    steps = settings.steps()
    whole = Task(
        task_id=directory.name,
        family=str(metadata.get("family", metadata.get("category", "unknown"))),
        split=str(metadata.get("split", "train")),
        path=directory,
        instruction="",
        test_names=(),
        agent_timeout_s=settings.agent_timeout_s,
        verifier_timeout_s=settings.verifier_timeout_s,
        verifier_env=settings.verifier_env,
        solution_env=settings.solution_env,
        environment=asked,
        metadata=metadata,
        collect=settings.collect,
    )
    if not steps:
        tests = (directory / "tests",)
        return replace(
            whole,
            instruction=_instruction(directory, directory),
            test_names=_test_names(directory, tests, declared=metadata.get("test_names")),
            separate_tests=_separate(
                tests,
                is_separate=settings.is_separate,
                environments=(settings.tests_environment,),
                artifacts=settings.artifacts,
                whole=whole,
            ),
        )
    stages = tuple(_step(step, whole, settings=settings) for step in steps)
    return replace(
        whole,
        instruction=stages[0].instruction,
        test_names=tuple(f"{stage.step_name}/{name}" for stage in stages for name in stage.test_names),
        agent_timeout_s=_sum([stage.agent_timeout_s for stage in stages]),
        verifier_timeout_s=max(stage.verifier_timeout_s for stage in stages),
        steps=stages,
        takes_final_reward=settings.takes_final_reward,
    )


def _step(step: StepToml, whole: Task, *, settings: TaskToml) -> Task:
    """A step as a task of its own."""
    directory = whole.path
    place = directory / "steps" / step.name
    tests = tuple(path for path in (directory / "tests", place / "tests") if path.is_dir())
    declared = whole.metadata.get("test_names")
    if isinstance(declared, list):
        heads = f"{step.name}/"
        declared = [name.removeprefix(heads) for name in declared if str(name).startswith(heads)]
    files = place / "workdir"
    return replace(
        whole,
        instruction=_instruction(directory, place),
        test_names=_test_names(directory, tests, declared=declared, step=step.name),
        agent_timeout_s=whole.agent_timeout_s if step.agent_timeout_s is None else step.agent_timeout_s,
        verifier_timeout_s=step.verifier_timeout_s,
        verifier_env=step.verifier_env,
        collect=(*whole.collect, *step.collect),
        separate_tests=_separate(
            tests[::-1],
            is_separate=step.is_separate,
            environments=(step.tests_environment, settings.tests_environment),
            artifacts=(*settings.artifacts, *step.artifacts),
            whole=whole,
        ),
        step_name=step.name,
        test_dirs=tests,
        workdir_files=files if files.is_dir() else None,
        healthcheck=step.healthcheck,
        min_reward=step.min_reward,
    )


def _separate(
    tests: Sequence[Path],
    *,
    is_separate: bool,
    environments: Sequence[TaskEnvironment | None],
    artifacts: Sequence[Artifact],
    whole: Task,
) -> SeparateTests | None:
    """The box of tests that are apart from the agent's, as Harbor finds it: of `environments` and of `tests`, the
    nearest first; the task's own environment where neither says it."""
    if not is_separate:
        return None
    found = next((each for each in environments if each is not None), whole.environment)
    for place in tests:
        if (place / "Dockerfile").is_file():
            return SeparateTests(replace(found, docker_image=""), place, tuple(artifacts))
    return SeparateTests(
        replace(found, docker_image=found.docker_image or whole.environment.docker_image),
        whole.path / "environment",
        tuple(artifacts),
    )


def _sum(seconds: Sequence[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None


def _instruction(task: Path, place: Path) -> str:
    """What `place` asks for. A conversation to go on from is refused: its words are another model's."""
    name = str((place / "instruction.md").relative_to(task))
    if (place / "trajectory.json").is_file():
        raise ValueError(
            f"task {task}: {(place / 'trajectory.json').relative_to(task)}: a conversation to go on from is not "
            f"supported; tell what matters of it in {name}"
        )
    text = without_canary(_text(task, name, "write what the agent is asked to do"))
    if not text.strip():
        raise ValueError(f"task {task}: {name} is empty; write what the agent is asked to do")
    return text


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


def _test_names(directory: Path, tests: Sequence[Path], *, declared: Any, step: str = "") -> tuple[str, ...]:
    script = _script(directory, tests)
    files = {path.name: path for place in tests for path in sorted(place.glob("*.py"))}
    if TEST_FILE.name not in files and (script is None or TEST_FILE.name in script):
        missing = f"steps/{step}/{TEST_FILE}" if step else TEST_FILE
        raise ValueError(
            f"task {directory}: {missing} is missing; a task without tests cannot be graded; write them there"
        )
    heads = f"{step}/" if step else ""
    way_out = (
        f"list the names pytest-json-ctrf reports{f', each after {heads!r},' if step else ''} under "
        f"metadata.test_names in {directory / 'task.toml'}"
    )
    if declared is not None and (declared != [] or not step):
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
    chosen = _test_files(directory, files, script=script)
    if not chosen:
        return (SCRIPT_TEST,)
    names: list[str] = []
    for file in chosen:
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
        shown = chosen[0].relative_to(directory)
        raise ValueError(
            f"task {directory}: {shown} has no test; write functions named test_..., or {way_out}"
        )
    return tuple(names)


def _script(directory: Path, tests: Sequence[Path]) -> str | None:
    """test.sh; said is what it fetches in vain."""
    path = next((place / "test.sh" for place in reversed(tests) if (place / "test.sh").is_file()), None)
    if path is None:
        return None
    script = path.read_text()
    if packages := (*foreign_packages(script), *foreign_programs(script)):
        warnings.warn(
            f"task {directory}: {path.relative_to(directory)} fetches {', '.join(packages)}: nothing can be fetched "
            "in a grade, and tests that need them fail",
            stacklevel=4,
        )
    return script


def _test_files(directory: Path, files: Mapping[str, Path], *, script: str | None) -> list[Path]:
    """Of the Python files by name, those whose functions are the task's tests; none when only the script's own word
    counts."""
    if TEST_FILE.name in files:
        return [files[TEST_FILE.name]]
    assert script is not None
    if not asks_for_report(script):
        return []
    found = sorted(name for name in files if name.startswith("test_") or name.endswith("_test.py"))
    if not found:
        raise ValueError(
            f"task {directory}: tests/test.sh asks for a CTRF report and tests/ has no test_*.py; list the names it "
            f"reports under metadata.test_names in {directory / 'task.toml'}"
        )
    return [files[name] for name in found]


def _text(directory: Path, name: str, why: str) -> str:
    path = directory / name
    if not path.is_file():
        raise ValueError(f"task {directory}: {name} is missing; {why}")
    return path.read_text()
