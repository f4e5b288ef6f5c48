"""The stages of a task: its steps, or the task itself, each begun in a box, worked in by somebody, and graded.

    begin: the step's files, its setup.sh, its health check -> ... -> grade: a copy of the box, or at the end the box
    itself once it is dead; for separate tests a fresh box and the artifacts -> the next step, or the end

As in Harbor: a step sees what those before it left, processes and terminal too; the next one is not begun where a
`min_reward` was not reached; the task's reward is the mean of the steps that were graded, or the last one's.
"""

import logging
import shlex
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from t1core.records import Grade, RewardSource, Task
from t1core.records.task import SeparateTests
from t1core.sandbox.healthcheck import wait_healthy
from t1core.sandbox.sandbox import Box, BoxBroken, BoxSpec, Layer, Sandbox
from t1core.verifier.grader import Grader
from t1core.verifier.reward import RewardKind

SETUP_DEADLINE_S = PACK_DEADLINE_S = 120.0
ARTIFACTS = "/logs/artifacts"  # handed over whatever a task lists, as in Harbor
_log = logging.getLogger(__name__)

TestsSpec = Callable[[SeparateTests], BoxSpec]


class StageGrade(NamedTuple):
    """A stage's grade, and whether the box was broken while it was copied for it."""

    grade: Grade
    is_broken: bool


async def begin(box: Box, stage: Task) -> None:
    """Make the box ready for a stage: a step's files in the working directory and its setup.sh, then what must be
    healthy. Raises ValueError when setup.sh fails, Unhealthy, and what the box raises."""
    if stage.workdir_files is not None:
        workdir = await _workdir(box)
        for file in sorted(stage.workdir_files.rglob("*")):
            if file.is_file():
                await box.put(file, f"{workdir}/{file.relative_to(stage.workdir_files).as_posix()}")
        if (stage.workdir_files / "setup.sh").is_file():
            done = await box.exec("bash ./setup.sh", timeout_s=SETUP_DEADLINE_S)
            if done.rc != 0:
                said = (done.stderr or done.stdout)[-200:].decode(errors="replace").strip()
                raise ValueError(
                    f"task {stage.path}: steps/{stage.step_name}/workdir/setup.sh ended with {done.rc}: {said}"
                )
    if stage.healthcheck is not None:
        await wait_healthy(box, stage.healthcheck)


async def grade_stage(
    stage: Task,
    box: Box,
    *,
    sandbox: Sandbox,
    grader: Grader,
    tests_spec: TestsSpec,
    is_last: bool,
    kind: RewardKind,
    scale: float,
    subtract_nop: bool,
) -> StageGrade:
    """Grade what the box holds now; after the last stage, or when what runs in it has broken it, it is dead.
    `tests_spec` makes the box of separate tests. Raises what the box and the sandbox raise, and ValueError for what
    cannot be graded."""
    is_broken = False
    for hook in stage.collect:
        try:
            done = await box.exec(hook.command, timeout_s=hook.timeout_s)
        except BoxBroken as broken:  # what it left is graded all the same
            _log.warning("task %s: %r was not run: %s", stage.task_id, hook.command[:80], broken)
            break
        if done.rc != 0:
            _log.warning("task %s: %r ended with %d", stage.task_id, hook.command[:80], done.rc)
    if stage.separate_tests is not None:
        layer = await _separate_layer(
            box, stage.separate_tests, sandbox=sandbox, spec=tests_spec(stage.separate_tests), is_last=is_last
        )
    else:
        try:
            layer = await (box.snapshot() if is_last else box.copy())
        except BoxBroken:  # in the middle of being copied
            layer, is_broken = await box.snapshot(), True
    try:
        with tempfile.TemporaryDirectory(prefix="t1-grade-") as attempt:
            grade = await grader.grade(
                stage, layer, attempt_dir=Path(attempt), kind=kind, scale=scale, subtract_nop=subtract_nop
            )
            return StageGrade(grade, is_broken)
    finally:
        layer.close()


async def _separate_layer(
    box: Box, asked: SeparateTests, *, sandbox: Sandbox, spec: BoxSpec, is_last: bool
) -> Layer:
    """A fresh box with the artifacts in it, dead. They go through processes of both boxes, never by the host."""
    with tempfile.TemporaryDirectory(prefix="t1-artifacts-") as place:
        archive = Path(place) / "artifacts.tar"
        try:
            members = await _pack(box, asked, into=archive)
        except BoxBroken as broken:
            _log.warning("box %s: it hands nothing over: %s", spec.box_id, broken)
            members = ()
        if is_last:
            await box.close()
        other = await sandbox.open(spec)
        try:
            if members:
                await _unpack(other, archive, members=members)
            return await other.snapshot()
        except BaseException:
            await other.close()
            raise


async def _pack(box: Box, asked: SeparateTests, *, into: Path) -> tuple[str, ...]:
    """Archive the artifacts that are there; their paths, without the first slash."""
    workdir = await _workdir(box)
    sources = dict.fromkeys([ARTIFACTS, *(artifact.source for artifact in asked.artifacts)])
    paths = [str(PurePosixPath(workdir, source)) for source in sources]
    listing = f'for p in {shlex.join(paths)}; do [ -e "$p" ] && printf \'%s\\n\' "$p"; done'
    there = set(
        (await box.exec(listing, timeout_s=PACK_DEADLINE_S)).stdout.decode(errors="replace").splitlines()
    )
    members = tuple(path.lstrip("/") for path in paths if path in there)
    if not members:
        return ()
    excluded = [f"--exclude={name}" for artifact in asked.artifacts for name in artifact.exclude]
    packed = f"/tmp/.t1-{uuid.uuid4().hex}.tar"
    command = f"tar -cf {packed} -C / {shlex.join([*excluded, '--', *members])}"
    done = await box.exec(command, timeout_s=PACK_DEADLINE_S)
    if done.rc != 0:
        _log.warning("artifacts are not whole: %s", done.stderr[-200:].decode(errors="replace").strip())
    try:
        await box.get(packed, into)
    except ValueError as error:  # its own doing: tar was stopped, or there is more than it may write
        _log.warning("no artifact is handed over: %s", error)
        return ()
    finally:
        await box.exec(f"rm -f {packed}", timeout_s=PACK_DEADLINE_S)
    return members


async def _workdir(box: Box) -> str:
    done = await box.exec("pwd", timeout_s=PACK_DEADLINE_S)
    return done.stdout.decode(errors="replace").strip() or "/"


async def _unpack(box: Box, archive: Path, *, members: Sequence[str]) -> None:
    packed = f"/tmp/.t1-{uuid.uuid4().hex}.tar"
    await box.put(archive, packed)
    given = shlex.join(members)
    command = (
        f"cd / && rm -rf -- {given}; tar -xf {packed} --no-same-owner --no-same-permissions -- {given}; "
        f"rm -f {packed}"
    )
    done = await box.exec(command, timeout_s=PACK_DEADLINE_S, cwd="/")
    if done.stderr:
        _log.warning("artifacts are not whole: %s", done.stderr[-200:].decode(errors="replace").strip())


def goes_on(stage: Task, grade: Grade) -> bool:
    """Whether the step after this one is begun."""
    return stage.min_reward is None or (grade.declared is not None and grade.declared >= stage.min_reward)


def whole_grade(task: Task, grades: Sequence[Grade], *, is_broken: bool) -> Grade:
    """The grade of a task, of its stages' grades in order. With `is_broken` the agent broke the box: the steps that
    were not reached are worth 0, or breaking it would be a way around them; steps that a `min_reward` kept back count
    for nothing, as in Harbor."""
    if not task.steps:
        return grades[0]
    named = list(zip(task.steps, grades, strict=False))
    ungraded = [grade for grade in grades if grade.reward is None]
    rewards = [grade.reward or 0.0 for grade in grades]
    if is_broken:
        rewards += [0.0] * (len(task.steps) - len(grades))
    reward = rewards[-1] if task.takes_final_reward else sum(rewards) / len(rewards)
    return replace(
        grades[-1],
        reward=None if ungraded else reward,
        source=RewardSource.NONE if ungraded else grades[-1].source,
        passed=sum(grade.passed for grade in grades),
        total=task.num_tests,
        solved=len(grades) == len(task.steps) and all(grade.solved for grade in grades),
        tests=tuple(
            replace(test, name=f"{stage.step_name}/{test.name}")
            for stage, grade in named
            for test in grade.tests
        ),
        flags=tuple(f"{stage.step_name}: {flag}" for stage, grade in named for flag in grade.flags),
        quarantined=any(grade.quarantined for grade in grades),
        duration_s=sum(grade.duration_s for grade in grades),
        cpu_s=sum(grade.cpu_s for grade in grades),
    )
