"""The battery: every attack against a task's tests, and what came of each.

untouched workspace, then empty files where work is expected  -> what is earned without work
each attack, in a box of its own, graded as a trial is         -> refused, or the tests fall for it
"""

import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from t1core.records import Grade, Task
from t1core.records.task import SeparateTests
from t1core.sandbox.healthcheck import wait_healthy
from t1core.sandbox.request import box_spec
from t1core.sandbox.sandbox import Box, BoxBroken, BoxDied, BoxSpec, ExecResult, Layer, Sandbox
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


@dataclass(frozen=True)
class Played:
    """What a script left: its layer, which lives as long as the block that gave it, and what the script printed.
    `ended` is False when the box died or the time was up before the script's end."""

    layer: Layer
    ended: bool
    stdout: bytes
    duration_s: float


class Bench:
    """Plays scripts in boxes of a task and grades what they left."""

    def __init__(
        self, task: Task, *, sandbox: Sandbox, grader: Grader, limits: Mapping[str, int] = LIMITS
    ) -> None:
        """`limits` are those of `box_spec`."""
        self._task, self._sandbox, self._grader, self._limits = task, sandbox, grader, limits

    @contextlib.asynccontextmanager
    async def played(
        self, script: str, *, files: Path | None = None, deadline_s: float = BOX_DEADLINE_S
    ) -> AsyncIterator[Played]:
        """Run `script` in a fresh box, with the directory `files` at /solution when given. ValueError for a task that
        is done in steps, or whose tests are not to see the box."""
        if not self._is_plain:
            raise ValueError(
                f"task {self._task.path}: it has several steps, separate tests or hooks; only tasks without can be "
                "looked at box by box"
            )
        box = await self._opened()
        try:
            started = time.monotonic()
            result = await self._play(box, script, files=files, deadline_s=deadline_s)
            duration_s = time.monotonic() - started
            layer = await box.snapshot()
            try:
                ended = result is not None and not result.timed_out
                yield Played(layer, ended, result.stdout if result is not None else b"", duration_s)
            finally:
                layer.close()
        finally:
            await box.close()

    async def graded(self, layer: Layer, *, task: Task | None = None) -> Grade:
        """Grade a layer, by the tests of another task when given."""
        with tempfile.TemporaryDirectory(prefix="t1-grade-") as attempt:
            return await self._grader.grade(task or self._task, layer, attempt_dir=Path(attempt))

    async def grade(self, script: str, *, is_solution: bool = False) -> Grade:
        """Run `script` in a fresh box, once for each step, with the task's own solution at /solution when it is that;
        grade it as a trial is."""
        box = await self._opened()
        grades: list[Grade] = []
        try:
            for stage in self._task.stages:
                await begin(box, stage)
                await self._play(box, script, files=stage.solution_dir if is_solution else None)
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
                if graded.is_broken or not goes_on(stage, graded.grade):
                    break
            return whole_grade(self._task, grades, is_broken=graded.is_broken)
        finally:
            await box.close()

    @property
    def _is_plain(self) -> bool:
        return not (self._task.steps or self._task.separate_tests or self._task.collect)

    def _spec(self, tests: SeparateTests | None = None) -> BoxSpec:
        asked = self._task.environment if tests is None else tests.environment
        directory = self._task.path / "environment" if tests is None else tests.directory
        return box_spec(
            asked, box_id="attack", environment_dir=directory, is_for_tests=tests is not None, **self._limits
        )

    async def _opened(self) -> Box:
        box = await self._sandbox.open(self._spec())
        if self._task.environment.healthcheck is not None:
            try:
                await wait_healthy(box, self._task.environment.healthcheck)
            except BaseException:
                await box.close()
                raise
        return box

    async def _play(
        self, box: Box, script: str, *, files: Path | None, deadline_s: float = BOX_DEADLINE_S
    ) -> ExecResult | None:
        """Run a script; None where the box ended meanwhile, by a limit, say: what it left is graded."""
        for file in sorted(files.rglob("*")) if files is not None else ():
            if file.is_file():
                await box.put(file, f"/solution/{file.relative_to(files)}")
        with tempfile.TemporaryDirectory(prefix="t1-attack-") as scratch:
            path = Path(scratch) / "script.sh"
            path.write_text(script)
            await box.put(path, "/run/t1/script.sh")
        env = self._task.solution_env if files is not None else None
        with contextlib.suppress(BoxDied, BoxBroken):
            return await box.exec("bash /run/t1/script.sh", timeout_s=deadline_s, env=env)
        return None

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
