"""A task made for these tests, boxes in which an agent's script runs, and grades of what it left."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from t1core.records import Grade, Task
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.sandbox import BoxSpec
from t1core.verifier.grader import Grader

TEST_SH = """#!/bin/bash
pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
TEST_OUTPUTS = """import sys; sys.path.insert(0, "/app")
def _s():
    import solution; return solution
def test_exists():
    import os; assert os.path.exists("/app/solution.py")
def test_add(): assert _s().add(2, 3) == 5
def test_mul(): assert _s().mul(4, 5) == 20
def test_neg(): assert _s().add(-1, -1) == -2
def test_big(): assert _s().mul(10**9, 10**9) == 10**18
"""
TEST_NAMES = tuple(f"test_outputs.py::test_{name}" for name in ("exists", "add", "mul", "neg", "big"))
RIGHT = "printf 'def add(a, b): return a + b\\ndef mul(a, b): return a * b\\n' > /app/solution.py"
WRONG = "printf 'def add(a, b): return 0\\ndef mul(a, b): return 0\\n' > /app/solution.py"


def make_task(path: Path, *, tests: str = TEST_OUTPUTS, script: str | None = TEST_SH, **changes) -> Task:
    """Write a task directory and describe it."""
    (path / "tests").mkdir(parents=True)
    (path / "tests" / "test_outputs.py").write_text(tests)
    if script is not None:
        (path / "tests" / "test.sh").write_text(script)
    task = Task("adder", "made", "train", path, "Write add and mul.", TEST_NAMES, verifier_timeout_s=60.0)
    return replace(task, **changes)


class Bench:
    """A sandbox and a grader; `grade` plays an agent's script and grades what it left."""

    def __init__(self, sandbox: BubblewrapSandbox, grader: Grader, scratch: Path) -> None:
        self.sandbox, self.grader, self.scratch = sandbox, grader, scratch

    async def grade(self, task: Task, script: str, **options) -> Grade:
        box = await self.sandbox.open(BoxSpec("trial", None))
        await box.exec(script, timeout_s=20)
        layer = await box.snapshot()
        try:
            attempt = Path(tempfile.mkdtemp(dir=self.scratch))
            return await self.grader.grade(task, layer, attempt_dir=attempt, **options)
        finally:
            layer.close()


def with_bench(scratch: Path, test: Callable[[Bench], Awaitable[None]], **options) -> None:
    """Run `test` with a started grader, and close everything afterwards."""

    async def run() -> None:
        sandbox, grader = BubblewrapSandbox(), Grader(**options)
        try:
            await grader.start()
            await asyncio.wait_for(test(Bench(sandbox, grader, scratch)), 900)
        finally:
            await grader.close()
            await sandbox.close()

    asyncio.run(run())
