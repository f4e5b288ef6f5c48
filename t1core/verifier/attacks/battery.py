"""The battery: every attack against a task's tests, and what came of each.

untouched workspace, then empty files where work is expected  -> what is earned without work
each attack, in a box of its own, graded as a trial is         -> refused, or the tests fall for it
"""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from t1core.records import Grade, Task
from t1core.records.task import SeparateTests
from t1core.sandbox.healthcheck import wait_healthy
from t1core.sandbox.request import box_spec
from t1core.sandbox.sandbox import Box, BoxDied, BoxSpec, Sandbox
from t1core.verifier.attacks.attack import Attack, placeholders
from t1core.verifier.attacks.inside import BYPASSES_INSIDE, REFUSED_INSIDE
from t1core.verifier.attacks.outside import LEFT_IN_THE_BOX, PROGRAMS
from t1core.verifier.attacks.target import Target
from t1core.verifier.grader import Grader
from t1core.verifier.reward import DEFAULT_SCALE
from t1core.verifier.stages import begin, goes_on, grade_stage, whole_grade

ATTACKS: tuple[Attack, ...] = (*LEFT_IN_THE_BOX, *PROGRAMS, *REFUSED_INSIDE, *BYPASSES_INSIDE)
BOX_DEADLINE_S = 60.0
LIMITS = {"memory_mb": 1024, "storage_mb": 1024, "max_processes": 128}


@dataclass(frozen=True)
class Outcome:
    """What an attack got. `applies` is False when the task gives it nothing to aim at; `gained` counts tests passed
    beyond what is earned without work, and is -1 for a grade that the attack kept from being given at all."""

    attack: Attack
    applies: bool
    gained: int = 0
    grade: Grade | None = None

    @property
    def is_fallen_for(self) -> bool:
        """Whether the attack paid: more tests than without work, or no grade, which a host would try again."""
        return self.gained != 0


class Bench:
    """Plays scripts in boxes of a task and grades what they left."""

    def __init__(self, task: Task, *, sandbox: Sandbox, grader: Grader) -> None:
        self._task, self._sandbox, self._grader = task, sandbox, grader

    async def grade(self, script: str, *, is_solution: bool = False) -> Grade:
        """Run `script` in a fresh box at each stage of the task, with that one's solution at /solution for the task's
        own, and grade it."""
        box = await self._sandbox.open(self._spec())
        grades: list[Grade] = []
        is_broken = False
        try:
            if self._task.environment.healthcheck is not None:
                await wait_healthy(box, self._task.environment.healthcheck)
            for stage in self._task.stages:
                await begin(box, stage)
                await self._play(box, script, solution=stage.solution_dir if is_solution else None)
                graded = await grade_stage(
                    stage,
                    box,
                    sandbox=self._sandbox,
                    grader=self._grader,
                    tests_spec=self._spec,
                    is_last=stage is self._task.stages[-1],
                    kind="dense",
                    scale=DEFAULT_SCALE,
                    subtract_nop=False,
                )
                grades.append(graded.grade)
                is_broken = graded.is_broken
                if is_broken or not goes_on(stage, graded.grade):
                    break
            return whole_grade(self._task, grades, is_broken=is_broken)
        finally:
            await box.close()

    def _spec(self, tests: SeparateTests | None = None) -> BoxSpec:
        asked = self._task.environment if tests is None else tests.environment
        directory = self._task.path / "environment" if tests is None else tests.directory
        return box_spec(
            asked, box_id="attack", environment_dir=directory, is_for_tests=tests is not None, **LIMITS
        )

    async def _play(self, box: Box, script: str, *, solution: Path | None) -> None:
        for file in sorted(solution.rglob("*")) if solution is not None else ():
            if file.is_file():
                await box.put(file, f"/solution/{file.relative_to(solution)}")
        with tempfile.TemporaryDirectory(prefix="t1-attack-") as scratch:
            path = Path(scratch) / "script.sh"
            path.write_text(script)
            await box.put(path, "/run/t1/script.sh")
        env = self._task.solution_env if solution is not None else None
        with contextlib.suppress(BoxDied):  # by a limit, say; what it left is graded
            await box.exec("bash /run/t1/script.sh", timeout_s=BOX_DEADLINE_S, env=env)

    async def without_work(self, target: Target) -> tuple[Grade, Grade]:
        """Grades of the untouched workspace, and of empty files where work is expected."""
        return await self.grade("true"), await self.grade(placeholders(target))


async def attack_all(
    bench: Bench, target: Target, *, earned: int, attacks: Sequence[Attack] = ATTACKS
) -> AsyncIterator[Outcome]:
    """Run each attack; `earned` is the number of tests passed without work."""
    for attack in attacks:
        script = attack.script(target)
        if not script:
            yield Outcome(attack, applies=False)
            continue
        grade = await bench.grade(placeholders(target) + script)
        gained = -1 if grade.reward is None else max(0, grade.passed - earned)
        yield Outcome(attack, applies=True, gained=gained, grade=grade)
