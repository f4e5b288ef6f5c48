"""A grade beside a bare pytest over the same tests and files, in a box of the same kind.

    python -m benchmarks.grading [--num-pairs 20] [--keep]

In each pair a practice task is solved in a box by its own solution; pytest with the CTRF reporter runs in that box as a
command; the box dies and the grader grades what it left. The grader forks a pytest that is loaded already, and copies,
hashes, seals and supervises, which bare pytest does not. Wall times are medians over pairs, in turn; CPU seconds are
those of the graded processes on one side and of pytest on the other.
"""

import asyncio
import re
import tempfile
import time
from pathlib import Path

from benchmarks.kept import Comparison, command_line, finish, medians
from t1core.records import Task
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.request import box_spec
from t1core.sandbox.sandbox import Box
from t1core.tasks.harbor import load_task
from t1core.tasks.practice.pool import generate_pool
from t1core.verifier.grader import Grader

_TIMES = re.compile(r"(\d+)m([\d.]+)s")


def practice_task(directory: Path) -> Task:
    """The first task of a small pool."""
    pool = generate_pool(
        directory, seed=0, tasks_per_family=1, heldout_per_family=1, heldout_family_tasks=1, max_level=3
    )
    return load_task(pool.directory / pool.entries[0].path)


async def solved_box(sandbox: BubblewrapSandbox, task: Task, *, name: str) -> Box:
    spec = box_spec(
        task.environment, box_id=name, environment_dir=task.path / "environment", memory_mb=1024, storage_mb=64,
        max_processes=64,
    )  # fmt: skip
    box = await sandbox.open(spec)
    done = await box.exec((task.path / "solution" / "solve.sh").read_text(), timeout_s=60.0)
    assert done.rc == 0, done.stderr
    return box


async def bare_pytest(box: Box, test_file: str) -> float:
    """Run it, all tests passing; its CPU seconds."""
    done = await box.exec(
        f"pytest --ctrf /tmp/ctrf.json {test_file} -rA >/tmp/log || cat /tmp/log; times", timeout_s=60.0
    )
    *printed, children = done.stdout.decode().strip().splitlines()
    assert len(printed) == 1, "\n".join(printed)
    return sum(60 * int(minutes) + float(seconds) for minutes, seconds in _TIMES.findall(children))


async def measure(*, num_pairs: int) -> dict[str, float]:
    """Medians in seconds."""
    taken: dict[str, list[tuple[float, float]]] = {"grade": [], "bare": []}
    with tempfile.TemporaryDirectory() as folder:
        task = practice_task(Path(folder) / "pool")
        sandbox, grader = BubblewrapSandbox(), Grader()
        try:
            await grader.start()
            for pair in range(num_pairs):
                box = await solved_box(sandbox, task, name=f"pair-{pair}")
                for path in sorted((task.path / "tests").iterdir()):
                    await box.put(path, f"/tmp/tests/{path.name}")
                began = time.perf_counter()
                cpu_s = await bare_pytest(box, "/tmp/tests/test_outputs.py")
                taken["bare"].append((time.perf_counter() - began, cpu_s))
                layer = await box.snapshot()
                began = time.perf_counter()
                grade = await grader.grade(task, layer, attempt_dir=Path(folder) / f"attempt-{pair}")
                taken["grade"].append((time.perf_counter() - began, grade.cpu_s))
                layer.close()
                assert grade.solved, grade.flags
        finally:
            await grader.close()
            await sandbox.close()
    return {"num_tests": float(task.num_tests)} | medians(taken)


def main() -> None:
    given, keep = command_line(__doc__, num_pairs=20)
    found = asyncio.run(measure(**given))
    for name, value in found.items():
        print(f"{name:14} {value:.4g}")
    comparisons = [
        Comparison(
            f"{what} of a grade", "bare pytest in a box", unit, found[f"grade_{kind}_s"], found[f"bare_{kind}_s"],
            is_more_better=False, target=1.3,
        )
        for what, kind, unit in (("CPU time", "cpu", "CPU s"), ("wall time", "wall", "s"))
    ]  # fmt: skip
    finish("grading", comparisons, parameters=given, detail=found, keep=keep)


if __name__ == "__main__":
    main()
