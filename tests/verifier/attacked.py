"""Tasks whose tests import the agent's code, or start it, and the battery played against them."""

from collections.abc import Sequence
from pathlib import Path

from t1core.records import Task
from t1core.verifier.attacks.attack import Attack
from t1core.verifier.attacks.battery import Bench, Outcome, attack_all
from t1core.verifier.attacks.target import find_target
from tests.verifier.trials import Bench as Boxes
from tests.verifier.trials import make_task

STARTS_A_PROGRAM = """import subprocess
def _run(*words):
    return subprocess.run(["python3", "/app/solve.py", *words], capture_output=True, text=True, timeout=5).stdout
def test_exists():
    import os; assert os.path.exists("/app/solve.py")
def test_two(): assert _run("2") == "4"
def test_nine(): assert _run("9") == "81"
"""
PROGRAM_TESTS = tuple(f"test_outputs.py::test_{name}" for name in ("exists", "two", "nine"))


def importing_task(path: Path) -> Task:
    """Five tests that import /app/solution.py."""
    return make_task(path, verifier_timeout_s=40.0)


def starting_task(path: Path, **changes) -> Task:
    """Three tests that start /app/solve.py."""
    options = {"tests": STARTS_A_PROGRAM, "test_names": PROGRAM_TESTS, "verifier_timeout_s": 40.0} | changes
    return make_task(path, **options)


async def outcomes(boxes: Boxes, task: Task, attacks: Sequence[Attack]) -> dict[str, Outcome]:
    """Each attack's outcome by its name; one test of each task passes with an empty file."""
    bench = Bench(task, sandbox=boxes.sandbox, grader=boxes.grader)
    found = {}
    async for outcome in attack_all(bench, find_target(task), earned=1, attacks=attacks):
        found[outcome.attack.name] = outcome
    return found
