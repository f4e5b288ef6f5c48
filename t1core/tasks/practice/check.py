"""The check of a practice pool: is every task what it claims to be?

For each task, in a throw-away directory: the untouched workspace passes no test, bash prints exactly what the
oracle says for every command, solve.sh passes every test. A sample also goes through real pytest with the
CTRF reporter. Only for pools of our own generator: the tests run in this process and the solution runs
without a box.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from t1core.records.task import Task
from t1core.tasks.harbor import load_task
from t1core.tasks.order import spread
from t1core.tasks.pool import Pool
from t1core.tasks.practice.exercise import Demonstration
from t1core.tasks.practice.families import Space, exercise
from t1core.tasks.practice.passing import passing_tests
from t1core.tasks.practice.render import GENERATOR_VERSION

MIN_TESTS, MAX_TESTS = 3, 24
SEPARATOR = "\x1e"
SHELL_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class CheckResult:
    """What was found of one task. `nop_passed` are tests that pass with nothing done."""

    task_id: str
    num_tests: int
    nop_passed: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        return not self.problems and not self.nop_passed


def check_pool(
    pool: Pool, sample: int | None = None, *, pytest_sample: int = 4, num_processes: int = 2
) -> list[CheckResult]:
    """Check all tasks of a pool, or about `sample` of them spread evenly, in index order.

    `pytest_sample` of those also run through pytest (about half a second each).
    """
    entries = spread(pool.entries, sample)
    with_pytest = {entry.task_id for entry in spread(entries, pytest_sample)}
    paths = [str(pool.directory / entry.path) for entry in entries]
    flags = [entry.task_id in with_pytest for entry in entries]
    if num_processes <= 1:
        return [check_task(path, with_pytest=flag) for path, flag in zip(paths, flags, strict=True)]
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as workers:
        return list(workers.map(_check_pair, zip(paths, flags, strict=True), chunksize=16))


def check_task(directory: Path | str, *, with_pytest: bool = False) -> CheckResult:
    """Check one task directory that the generator wrote."""
    task = load_task(directory)
    problems: list[str] = []
    if not MIN_TESTS <= task.num_tests <= MAX_TESTS:
        problems.append(f"{task.num_tests} tests, expected {MIN_TESTS} to {MAX_TESTS}")
    demonstration = _demonstration(task)
    with tempfile.TemporaryDirectory(prefix="t1-check-") as scratch:
        untouched = _workspace(task, Path(scratch) / "untouched")
        nop_passed = passing_tests(task.path, root=untouched)
        problems += _output_problems(demonstration, untouched)  # no longer untouched after this
        problems += _failing(task, untouched, "the oracle's commands")
        solved = _workspace(task, Path(scratch) / "solved")
        printed = _bash((task.path / "solution" / "solve.sh").read_text(), solved)
        if printed != "".join(output for _, output in demonstration.steps):
            problems.append(f"solve.sh prints {printed!r}")
        problems += _failing(task, solved, "solve.sh")
        if with_pytest:
            problems += _pytest_problems(task, solved, Path(scratch) / "ctrf.json")
    return CheckResult(task.task_id, task.num_tests, nop_passed, tuple(problems))


def _check_pair(pair: tuple[str, bool]) -> CheckResult:
    return check_task(pair[0], with_pytest=pair[1])


def _demonstration(task: Task) -> Demonstration:
    """Generated again from the seed in task.toml; a generator that has changed since shows as a problem."""
    meta = task.metadata
    if meta.get("generator_version") != GENERATOR_VERSION:
        raise ValueError(
            f"task {task.path} is not of practice generator {GENERATOR_VERSION}; generate the pool again"
        )
    space = Space(meta["space"])
    made, _ = exercise(task.family, seed=meta["seed"], index=meta["index"], space=space, level=meta["level"])
    return made.demonstration


def _workspace(task: Task, root: Path) -> Path:
    files = task.path / "environment" / "files"
    if files.is_dir():
        shutil.copytree(files, root)
    else:
        root.mkdir()
    return root


def _output_problems(demonstration: Demonstration, root: Path) -> list[str]:
    """Type every command of the oracle and compare what each prints."""
    script = "".join(f"{command}\nprintf '\\036'\n" for command in demonstration.commands)
    printed = _bash(script, root).split(SEPARATOR)
    claimed = [output for _, output in demonstration.steps] + [""]
    if printed == claimed:
        return []
    return [f"bash prints {printed!r} where the oracle claims {claimed!r}"]


def _bash(script: str, root: Path) -> str:
    """stdout and stderr of a script run at `root`, as one text."""
    environment = {"PATH": os.defpath + ":/usr/local/bin", "T1_APP_ROOT": str(root), "HOME": str(root)}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-s"], input=script, text=True, cwd=root, env=environment,
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SHELL_TIMEOUT_S,
    )  # fmt: skip
    return done.stdout


def _failing(task: Task, root: Path, after: str) -> list[str]:
    passed = passing_tests(task.path, root=root)
    missing = [name for name in task.test_names if name not in passed]
    return [f"after {after} these fail: {', '.join(missing)}"] if missing else []


def _pytest_problems(task: Task, root: Path, report: Path) -> list[str]:
    """Real pytest with the CTRF reporter: the names it reports are the task's, and all pass."""
    tests = task.path / "tests" / "test_outputs.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tests.parent)]
    environment = os.environ | {"T1_APP_ROOT": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(
        [*command, "--ctrf", str(report), str(tests)], cwd=root, env=environment, check=False,
        capture_output=True, timeout=60,
    )  # fmt: skip
    if not report.is_file():
        return ["pytest wrote no CTRF report"]
    reported = json.loads(report.read_text())["results"]["tests"]
    if tuple(test["name"] for test in reported) != task.test_names:
        return [f"pytest reports {[test['name'] for test in reported]}"]
    failed = [test["name"] for test in reported if test["status"] != "passed"]
    return [f"pytest fails {failed}"] if failed else []
