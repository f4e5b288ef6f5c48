"""One trial from an opened box to a graded trajectory and its training rows.

    open box -> agent loop -> kill box, keep its files -> grade in a fresh box -> assemble rows
                `- for each step of a task that has several; the box is copied, and lives on -'
    `------------------------------ one deadline for all of it -----------------------------'
    then, always: close the box, tell the engine to forget the trial (each within the control deadline)

Whatever breaks is recorded with the boundary at which it broke; only a missing route record stops the step, since
dropping the trial would condition the batch on capture having worked.
"""

import asyncio
import contextlib
import functools
import itertools
import logging
import resource
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from t1core.agent.context import AgentLimits, agent_time_s
from t1core.agent.loop import (
    STALLED_SHARE,
    AgentInput,
    AgentRecord,
    Generate,
    GenerationAborted,
    GenerationStalled,
    run_agent,
)
from t1core.agent.prompt import Wording
from t1core.agent.protocol import Protocol
from t1core.agent.skills import told_of
from t1core.agent.tokenizer import ChatTokenizer
from t1core.records import (
    Boundary,
    Failure,
    Generation,
    Grade,
    PrefixRelation,
    RowStatus,
    SamplingParams,
    StopReason,
    Task,
    TrainingRow,
    Trajectory,
    TrialInFlight,
)
from t1core.records.task import SeparateTests
from t1core.rollout.answer import EngineGarbled, check_answer
from t1core.rollout.engine import EngineDead, EngineRefused
from t1core.rollout.pacing import Pacer
from t1core.routing import MissingRoutes, validate
from t1core.sandbox.healthcheck import Unhealthy, wait_healthy
from t1core.sandbox.request import box_spec
from t1core.sandbox.sandbox import (
    Box,
    BoxBroken,
    BoxDied,
    BoxSpec,
    BoxTimeout,
    Sandbox,
    SandboxUnavailable,
    Terminal,
)
from t1core.tito import UnresolvedRetry, assemble, reencoded_row
from t1core.verifier.grader import Grader
from t1core.verifier.stages import StageGrade, begin, goes_on, grade_stage, whole_grade

_log = logging.getLogger(__name__)
# What breaks here may hold the next time, and says nothing about the model.
INFRASTRUCTURE = (Boundary.ENGINE, Boundary.SANDBOX, Boundary.VERIFIER)


class Ungraded(RuntimeError):
    """The verifier could not grade a trial through no fault of the agent."""


class TrialOverdue(RuntimeError):
    """A trial as a whole took longer than it may."""


@dataclass(frozen=True)
class TrialSpec:
    """One trial to run. `sampling_seed` and the trial's id fix every random number the engine draws for it. Trials of a
    step with one `group` are samples of one task; None: a trial on its own. `predicted_s`: how long it was expected to
    take, None if nobody knew. An evaluation has limits of its own, and may sample from less than the whole
    distribution. Without `needs_rows` nothing is learnt from it, and its calls may lack routes."""

    trial_id: str
    task: Task
    step: int
    attempt: int
    sampling_seed: int
    temperature: float = 1.0
    group: int | None = None
    predicted_s: float | None = None
    is_evaluation: bool = False
    top_p: float = 1.0
    top_k: int = -1
    needs_rows: bool = True


@dataclass(frozen=True)
class TrialResult:
    """A finished trial; `rows` is empty when it was cut, failed or sampled nothing."""

    trajectory: Trajectory
    rows: tuple[TrainingRow, ...]
    cached_tokens: int = 0
    is_time_capped: bool = False  # the task asks for more time than the operator allows


@dataclass(frozen=True)
class RewardRule:
    """How a grade becomes a reward."""

    kind: str
    scale: float
    subtract_nop: bool


@dataclass(frozen=True)
class BoxLimits:
    """What a box may use."""

    memory_mb: int
    storage_mb: int
    max_processes: int


class TrialRunner:
    """Runs trials on this host; `cut` ends live ones at once."""

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        grader: Grader,
        generate: Generate,
        abort_request: Callable[[str], Awaitable[bool]],
        release_session: Callable[[str], Awaitable[None]],
        tokenizer: ChatTokenizer,
        protocol: Protocol,
        wording: Wording,
        limits: AgentLimits,
        verifier_timeout_s: float,
        box_limits: BoxLimits,
        reward: RewardRule,
        pacer: Pacer,
        num_experts: int,
        deadline_s: float,
        control_deadline_s: float,
        engine_name: str = "the engine",
        is_reencoded: bool = False,
        evaluation_limits: AgentLimits | None = None,
        vocab_size: int | None = None,
    ) -> None:
        """`limits` are those of training, and of evaluation unless that has its own; their `timeout_s`, and
        `verifier_timeout_s`, cap what a task asks for. `deadline_s` bounds a trial from its arrival to its rows,
        `control_deadline_s` each part of its clean-up; `engine_name` is who is named when routes are missing. With
        `is_reencoded` rows hold what the answers' texts encode to, for an experiment on just that. Ids from
        `vocab_size` on are garbage; None where nobody knows it."""
        self._sandbox = sandbox
        self._grader = grader
        self._generate = generate
        self._abort_request = abort_request
        self._release_session = release_session
        self._tokenizer = tokenizer
        self._protocol = protocol
        self._wording = wording
        self._limits = limits
        self._evaluation_limits = evaluation_limits or limits
        self._verifier_timeout_s = verifier_timeout_s
        self._box_limits = box_limits
        self._reward = reward
        self._pacer = pacer
        self._num_experts = num_experts
        self._engine_name = engine_name
        self._is_reencoded = is_reencoded
        self._vocab_size = vocab_size
        self._deadline_s = deadline_s
        self._control_deadline_s = control_deadline_s
        self._live: dict[str, asyncio.Task[TrialResult]] = {}
        self._cut: set[str] = set()
        self._trials: dict[str, _Trial] = {}

    def live(self) -> list[TrialInFlight]:
        """The trials in flight, the one that arrived first before the others."""
        return [trial.live() for trial in self._trials.values()]

    async def run(self, spec: TrialSpec) -> TrialResult:
        """Run one trial to its end. Raises only `MissingRoutes`, and cancellation that was not a cut."""
        trial = _Trial(spec)
        if spec.trial_id in self._cut:  # cut while it was on its way here
            self._cut.discard(spec.trial_id)
            return trial.cut()
        self._trials[spec.trial_id] = trial
        work = self._live[spec.trial_id] = asyncio.create_task(self._work(trial), name=spec.trial_id)
        limit = asyncio.timeout(self._deadline_s)
        try:
            async with limit:
                return trial.result(await work)
        except asyncio.CancelledError:
            if spec.trial_id not in self._cut:
                raise
            return trial.cut()
        except MissingRoutes as error:
            raise MissingRoutes(f"{self._engine_name}: {error}") from error
        except TimeoutError as error:
            overdue = TrialOverdue(f"not through after {self._deadline_s:g} s, in phase {trial.phase}")
            trial.fail(overdue if limit.expired() else error)
            return trial.result(())
        except Exception as error:
            trial.fail(error)
            return trial.result(())
        finally:
            # From here on a cut finds nothing to cancel, so what was opened is always released.
            del self._live[spec.trial_id]
            self._cut.discard(spec.trial_id)
            trial.released_since = time.monotonic()
            await self._release(trial)
            del self._trials[spec.trial_id]

    async def cut(self, trial_ids: list[str]) -> None:
        """End these trials now, also such as have not arrived yet; each returns its record, with stop reason CUT.

        Cutting a trial again does nothing: a second cancellation would break into its clean-up.
        """
        fresh = [trial_id for trial_id in trial_ids if trial_id not in self._cut]
        self._cut.update(fresh)
        for trial_id in fresh:
            if trial_id in self._live:
                self._live[trial_id].cancel()

    async def _work(self, trial: "_Trial") -> tuple[TrainingRow, ...]:
        spec = trial.spec
        limits = self._limits_of(spec)
        trial.agent_budget_s = limits.timeout_s
        trial.is_time_capped = limits.timeout_s < (spec.task.agent_timeout_s or 0.0)
        await self._pacer.take()
        environment = spec.task.environment
        with trial.timed("open", Boundary.SANDBOX):
            trial.box = await self._sandbox.open(self._box_spec(spec))
            if environment.healthcheck is not None:
                await wait_healthy(trial.box, environment.healthcheck)
            terminal = await trial.box.terminal()
        grades: list[Grade] = []
        is_broken = False
        for stage in spec.task.stages:
            try:
                await self._work_on(trial, stage, terminal, limits)
            except BoxBroken:
                if not grades:
                    raise
                trial.record.stop_reason, is_broken = StopReason.BOX_BROKEN, True
                break  # by what an earlier step left running
            is_broken = trial.record.stop_reason is StopReason.BOX_BROKEN
            is_last = is_broken or stage is spec.task.stages[-1]
            with trial.timed("grade", Boundary.VERIFIER):
                graded = await self._grade(spec, stage, trial.box, is_last=is_last)
            grades.append(graded.grade)
            if graded.is_broken:
                trial.record.stop_reason, is_broken = StopReason.BOX_BROKEN, True
            if is_last or is_broken or graded.grade.reward is None or not goes_on(stage, graded.grade):
                break
        trial.grade = whole_grade(spec.task, grades, is_broken=is_broken)
        if trial.grade.reward is None:
            raise Ungraded(", ".join(trial.grade.flags) or "the grader gave no reward")
        with trial.timed("assemble", Boundary.OURS):
            return self._assemble(trial) if spec.needs_rows else ()

    async def _work_on(self, trial: "_Trial", stage: Task, terminal: Terminal, limits: AgentLimits) -> None:
        """Let the agent do a stage of its task; the operator's cap on time is for all of them together."""
        spec, box = trial.spec, trial.box
        assert box is not None
        with trial.timed("open", Boundary.SANDBOX):
            await begin(box, stage)
            told = await told_of(box, spec.task.environment)
        left_s = max(0.0, limits.timeout_s - trial.timings_s.get("agent", 0.0))
        given_s = agent_time_s(asked_s=stage.agent_timeout_s, cap_s=left_s)
        with trial.timed("agent", Boundary.AGENT):
            await run_agent(
                trial.record,
                AgentInput(
                    trial_id=spec.trial_id,
                    instruction=stage.instruction + told,
                    terminal=terminal,
                    generate=self._ask,
                    tokenizer=self._tokenizer,
                    protocol=self._protocol,
                    wording=self._wording,
                    limits=replace(limits, timeout_s=given_s),
                    sampling=SamplingParams(
                        max_new_tokens=limits.max_new_tokens,
                        temperature=spec.temperature,
                        top_p=spec.top_p,
                        top_k=spec.top_k,
                        stop_token_ids=self._tokenizer.stop_token_ids,
                        sampling_seed=spec.sampling_seed,
                    ),
                    stalled_after_s=STALLED_SHARE * limits.timeout_s,
                ),
            )

    async def _ask(self, input_ids: np.ndarray, **request: Any) -> Generation:
        answer = await self._generate(input_ids, **request)
        check_answer(
            answer,
            sampling=request["sampling"],
            request_id=request["request_id"],
            vocab_size=self._vocab_size,
        )
        return answer

    async def _release(self, trial: "_Trial") -> None:
        """Close the box first, whatever else hangs, then tell the engine. What this raises must not hide how the trial
        ended, so it is logged."""
        if trial.box is not None:
            await self._tidy(trial, "closing its box", trial.box.close())
        if (
            trial.record.starts
        ):  # an agent began, so the engine may know it; a later step's box may be being made ready
            await self._tidy(trial, "telling the engine to forget it", self._forget(trial))

    async def _forget(self, trial: "_Trial") -> None:
        if trial.record.pending_call_id is not None:
            await self._abort_request(trial.record.pending_call_id)
        await self._release_session(trial.spec.trial_id)

    async def _tidy(self, trial: "_Trial", what: str, work: Awaitable[object]) -> None:
        try:
            async with asyncio.timeout(self._control_deadline_s):
                await work
        except Exception as error:
            _log.warning(
                "trial %s: %s failed: %s: %s", trial.spec.trial_id, what, type(error).__name__, error
            )

    def _limits_of(self, spec: TrialSpec) -> AgentLimits:
        limits = self._evaluation_limits if spec.is_evaluation else self._limits
        return replace(
            limits, timeout_s=agent_time_s(asked_s=spec.task.agent_timeout_s, cap_s=limits.timeout_s)
        )

    def _box_spec(self, spec: TrialSpec, tests: SeparateTests | None = None) -> BoxSpec:
        """The agent's box, or that of `tests` which see one of their own."""
        return box_spec(
            spec.task.environment if tests is None else tests.environment,
            box_id=spec.trial_id.replace("/", "_") + ("" if tests is None else "-tests"),
            environment_dir=spec.task.path / "environment" if tests is None else tests.directory,
            is_for_tests=tests is not None,
            memory_mb=self._box_limits.memory_mb,
            storage_mb=self._box_limits.storage_mb,
            max_processes=self._box_limits.max_processes,
        )

    async def _grade(self, spec: TrialSpec, stage: Task, box: Box, *, is_last: bool) -> StageGrade:
        return await grade_stage(
            replace(stage, verifier_timeout_s=min(stage.verifier_timeout_s, self._verifier_timeout_s)),
            box,
            sandbox=self._sandbox,
            grader=self._grader,
            tests_spec=functools.partial(self._box_spec, spec),
            is_last=is_last,
            kind=self._reward.kind,
            scale=self._reward.scale,
            subtract_nop=self._reward.subtract_nop,
        )

    def _assemble(self, trial: "_Trial") -> tuple[TrainingRow, ...]:
        grade = trial.grade
        assert grade is not None and grade.reward is not None
        if not trial.record.calls:
            return ()
        finished = trial.record.stop_reason is StopReason.COMPLETED
        rows = assemble(
            trial.record.calls,
            reward=grade.reward,
            status=RowStatus.COMPLETED if finished else RowStatus.TRUNCATED,
        )
        _check_relations(trial.record, rows)
        if self._is_reencoded:
            rows = tuple(self._reencode(row) for row in rows)
        for row in rows:
            if row.rollout_routed_experts is None:
                raise MissingRoutes(f"trial {trial.spec.trial_id}: the engine returned no routes")
            try:
                validate(
                    row.rollout_routed_experts, num_tokens=len(row.tokens), num_experts=self._num_experts
                )
            except ValueError as error:
                raise MissingRoutes(f"trial {trial.spec.trial_id}: {error}") from error
        return rows

    def _reencode(self, row: TrainingRow) -> TrainingRow:
        tokenizer = self._tokenizer
        return reencoded_row(
            row,
            encode=tokenizer.encode,
            decode=tokenizer.decode,
            specials=(tokenizer.im_start, tokenizer.im_end, tokenizer.end_of_text),
        )


def _check_relations(record: AgentRecord, rows: tuple[TrainingRow, ...]) -> None:
    """Our own history is ids: a stream is extended strictly, and a new one begins with a step, after a summary, and
    nowhere else."""
    summaries = [turn.model_call_id for turn in record.turns if turn.is_summary]
    calls = [call.model_call_id for call in record.calls if len(call.completion_token_ids)]
    steps = {record.calls[start].model_call_id for start in record.starts if start < len(record.calls)}
    begins = {after for before, after in itertools.pairwise(calls) if before in summaries}
    found = {span.model_call_id: span.relation for row in rows for span in row.spans}
    begins |= steps - set(calls[:1])
    expected = {call: PrefixRelation.SPLIT if call in begins else PrefixRelation.STRICT for call in calls}
    assert found == expected, f"boundaries are {found}, expected {expected}"


class _Trial:
    """The state of one running trial."""

    def __init__(self, spec: TrialSpec) -> None:
        self.spec = spec
        self.record = AgentRecord()
        self.box: Box | None = None
        self.grade: Grade | None = None
        self.failure: Failure | None = None
        self.timings_s: dict[str, float] = {}
        self.boundary = Boundary.OURS
        self.phase = "queue"
        self.agent_budget_s = 0.0
        self.is_time_capped = False
        self._started = self.phase_since = time.monotonic()
        self.released_since: float | None = None

    def live(self) -> TrialInFlight:
        """Where it is now."""
        record, state, since = self.record, self.phase, self.phase_since
        if self.released_since is not None:
            state, since = "release", self.released_since
        elif state == "agent":
            is_sampling = record.pending_since is not None
            state = "generate" if is_sampling else "terminal"
            since = (record.pending_since if is_sampling else record.acting_since) or since
        now = time.monotonic()
        return TrialInFlight(
            trial_id=self.spec.trial_id,
            task_id=self.spec.task.task_id,
            step=self.spec.step,
            state=state,
            state_s=now - since,
            age_s=now - self._started,
            num_turns=len(record.turns),
            sampled_tokens=record.num_sampled,
        )

    @contextlib.contextmanager
    def timed(self, name: str, boundary: Boundary):
        self.phase, self.boundary = name, boundary
        began = self.phase_since = time.monotonic()
        try:
            yield
        finally:
            self.timings_s[name] = self.timings_s.get(name, 0.0) + time.monotonic() - began

    def fail(self, error: Exception) -> None:
        boundary = self._boundary_of(error)
        # A refusal would be repeated word for word.
        retryable = boundary in INFRASTRUCTURE and not isinstance(error, EngineRefused)
        self.failure = Failure(boundary, type(error).__name__, str(error)[:2000], retryable)
        self.record.stop_reason = StopReason.FAILED

    def _boundary_of(self, error: Exception) -> Boundary:
        """By the error where its type tells, else by the phase it broke in."""
        if isinstance(
            error, EngineDead | EngineGarbled | EngineRefused | GenerationAborted | GenerationStalled
        ):
            return Boundary.ENGINE
        if isinstance(error, SandboxUnavailable) and self.phase == "grade":
            return Boundary.VERIFIER  # the grader's own namespaces
        if isinstance(error, SandboxUnavailable | BoxDied | BoxTimeout | Unhealthy):
            return Boundary.SANDBOX
        if isinstance(error, TrialOverdue) and self.record.pending_call_id is not None:
            return Boundary.ENGINE
        if isinstance(error, BoxBroken):
            return Boundary.TASK  # before the agent's first turn, so by the task's own environment
        if isinstance(error, UnresolvedRetry):
            return Boundary.AGENT
        if isinstance(error, ValueError) and self.phase in ("open", "grade"):
            return Boundary.TASK  # an environment that cannot be honoured, or no tests
        return self.boundary

    def cut(self) -> TrialResult:
        self.record.stop_reason = StopReason.CUT
        self.grade = None
        return self.result(())

    def result(self, rows: tuple[TrainingRow, ...]) -> TrialResult:
        spec, record = self.spec, self.record
        assert record.stop_reason is not None, f"trial {spec.trial_id} ended without a stop reason"
        timings = self.timings_s | {
            "generate": record.generate_s,
            "terminal": record.terminal_s,
            "agent_budget": self.agent_budget_s,
            "total": time.monotonic() - self._started,
        }
        if spec.predicted_s is not None:
            timings["predicted"] = spec.predicted_s
        trajectory = Trajectory(
            trial_id=spec.trial_id,
            task_id=spec.task.task_id,
            family=spec.task.family,
            split=spec.task.split,
            num_tests=spec.task.num_tests,
            step=spec.step,
            stop_reason=record.stop_reason,
            failure=self.failure,
            turns=tuple(record.turns),
            calls=tuple(record.calls),
            grade=self.grade,
            timings_s=timings,
            cpu_s={"grade": self.grade.cpu_s if self.grade else 0.0},
        )
        return TrialResult(trajectory, rows, record.cached_tokens, self.is_time_capped)


def host_cpu_s() -> tuple[float, float]:
    """CPU seconds of this process, and of its ended children."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime
