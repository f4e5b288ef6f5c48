"""Examining a task's tests: what they give for nothing, whether the task's own solution passes them, and which
attacks they fall for."""

from collections.abc import AsyncIterator
from pathlib import Path

from t1core.records import Grade, TestStatus
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.request import DEFAULT_WORKDIR
from t1core.tasks.harbor import load_task
from t1core.verifier.attacks.battery import ATTACKS, Bench, Outcome, attack_all
from t1core.verifier.attacks.target import Target, find_target
from t1core.verifier.grader import Grader


async def examine(directory: Path, *, with_attacks: bool) -> AsyncIterator[str]:
    """Lines about a task directory, as they become known. Raises what opening boxes and reading tasks raise."""
    task = load_task(directory)
    target = find_target(task, workdir=task.environment.workdir or DEFAULT_WORKDIR)
    sandbox, grader = BubblewrapSandbox(), Grader()
    try:
        await grader.start()
        bench = Bench(task, sandbox=sandbox, grader=grader)
        yield f"task                 {task.task_id}, {task.num_tests} tests"
        yield f"tests import         {', '.join(target.modules) or 'nothing of the agent'}"
        yield f"tests start          {', '.join(target.programs) or 'no program of the agent'}"
        untouched, empty = await bench.without_work(target)
        yield f"untouched workspace  {_count(untouched)}"
        yield f"empty files          {_count(empty)}"
        if all((stage.solution_dir / "solve.sh").is_file() for stage in task.stages):
            yield f"solution             {_count(await bench.grade('bash /solution/solve.sh', is_solution=True))}"
        if with_attacks:
            async for line in _attack_lines(bench, target, earned=max(untouched.passed, empty.passed)):
                yield line
    finally:
        await grader.close()
        await sandbox.close()


async def _attack_lines(bench: Bench, target: Target, *, earned: int) -> AsyncIterator[str]:
    fallen: list[Outcome] = []
    num_tried = 0
    async for outcome in attack_all(bench, target, earned=earned):
        num_tried += outcome.applies
        if outcome.applies and outcome.is_fallen_for:
            fallen.append(outcome)
            yield f"falls for            {outcome.attack.name}: {_gain(outcome)}"
            if outcome.attack.way_out:
                yield f"                     way out: {outcome.attack.way_out}"
    aimless = len(ATTACKS) - num_tried
    yield f"attacks              {num_tried} tried, {aimless} have nothing to aim at, {len(fallen)} paid"


def _gain(outcome: Outcome) -> str:
    grade = outcome.grade
    assert grade is not None
    if grade.reward is None:
        return f"no grade ({', '.join(grade.flags)})"
    noticed = f"quarantined ({', '.join(grade.flags)[:120]})" if grade.quarantined else "unnoticed"
    return f"{outcome.gained} tests more than without work, {noticed}"


def _count(grade: Grade) -> str:
    if grade.reward is None:
        return f"no grade: {', '.join(grade.flags)[:300]}"
    passed = [test.name.partition("::")[2] for test in grade.tests if test.status is TestStatus.PASSED]
    some = f": {', '.join(passed)}" if 0 < len(passed) < grade.total else ""
    flags = f"  [{', '.join(grade.flags)[:200]}]" if grade.flags else ""
    return f"{grade.passed} of {grade.total}{some}{flags}"
