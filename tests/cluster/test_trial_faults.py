"""Trials in which something else than the model breaks: real boxes and graders, an engine that is silent on purpose."""

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from t1core.agent.context import AgentLimits
from t1core.agent.prompt import WORDINGS
from t1core.agent.protocol import PROTOCOLS
from t1core.agent.response import Command, render_response
from t1core.agent.tokenizer import train_tokenizer
from t1core.records import Boundary, Grade, RewardSource, SamplingParams, StopReason, Task
from t1core.rollout.answer import check_answer
from t1core.rollout.engine import EngineRefused
from t1core.rollout.faults import SilentEngine
from t1core.rollout.pacing import Pacer
from t1core.rollout.trial import BoxLimits, RewardRule, TrialRunner, TrialSpec, _Trial
from t1core.routing import MissingRoutes
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.sandbox import SandboxUnavailable
from t1core.tito import UnresolvedRetry
from t1core.verifier.grader import Grader
from t1core.verifier.stages import StageGrade

LIMITS = AgentLimits(
    max_turns=1, max_new_tokens=32, context_tokens=4096, context_margin_tokens=0, timeout_s=60.0, max_wait_s=1.0,
    output_limit_bytes=1000,
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_tokenizer(["a few words"], tmp_path_factory.mktemp("tokenizer"), vocab_size=300)


@pytest.fixture
def task(tmp_path):
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "Dockerfile").write_text("FROM debian\nWORKDIR /app\n")
    return Task("task", "family", "train", tmp_path, "do it", ("test_outputs.py::test_a",))


class Engine:
    """What a host sees of an engine; notes how many boxes were live when it was told to forget a trial."""

    def __init__(self, sandbox, generate):
        self.sandbox, self.generate, self.boxes_live_when_told = sandbox, generate, []

    async def abort_request(self, request_id):
        self.boxes_live_when_told.append(len(self.sandbox._boxes))
        await asyncio.Event().wait()

    async def release_session(self, session_id):
        self.boxes_live_when_told.append(len(self.sandbox._boxes))


async def breaking(input_ids, **request):
    raise RuntimeError("a bug in the agent")


def trial(
    task,
    tokenizer,
    *,
    generate=breaking,
    during=None,
    deadline_s=120.0,
    timeout_s=60.0,
    limits=None,
    storage_mb=64,
    grades=False,
):
    """Run one trial, `during` beside it: (result, engine, live boxes afterwards, seconds)."""

    async def run():
        sandbox, grader = BubblewrapSandbox(), Grader()
        engine = Engine(sandbox, generate)
        runner = TrialRunner(
            sandbox=sandbox,
            grader=grader,
            generate=engine.generate,
            abort_request=engine.abort_request,
            release_session=engine.release_session,
            tokenizer=tokenizer,
            protocol=PROTOCOLS["json"],
            wording=WORDINGS["compact"],
            limits=replace(LIMITS, timeout_s=timeout_s, **(limits or {})),
            verifier_timeout_s=60.0,
            box_limits=BoxLimits(memory_mb=512, storage_mb=storage_mb, max_processes=64),
            reward=RewardRule("dense", 20.0, False),
            pacer=Pacer(100.0),
            num_experts=8,
            deadline_s=deadline_s,
            control_deadline_s=1.0,
            engine_name="engine 7",
            vocab_size=300,
        )
        began = time.monotonic()
        try:
            if grades:
                await grader.start()
            spec = TrialSpec("trial", task, step=0, attempt=0, sampling_seed=0)
            work = asyncio.create_task(runner.run(spec))
            if during is not None:
                await during(runner)
            result = await asyncio.wait_for(work, 60)
            return result.trajectory, engine, len(sandbox._boxes), time.monotonic() - began
        finally:
            await grader.close()
            await sandbox.close()

    return asyncio.run(run())


def test_a_bad_environment_is_the_tasks_failure_and_not_tried_again(task, tokenizer):
    (task.path / "environment" / "Dockerfile").write_text("FROM debian\nRUN false\n")
    ended, engine, live, _ = trial(task, tokenizer)
    assert (ended.failure.boundary, ended.failure.retryable) == (Boundary.TASK, False)
    assert "RUN false" in ended.failure.message and live == 0 and engine.boxes_live_when_told == []


def test_a_task_without_tests_is_the_tasks_failure(task, tokenizer):
    ended, _, live, _ = trial(replace(task, test_names=()), tokenizer, generate=one_word(tokenizer))
    assert ended.failure.boundary is Boundary.TASK and "no tests" in ended.failure.message and live == 0


def test_a_bug_in_the_agent_is_the_agents_failure(task, tokenizer):
    ended, _, live, _ = trial(task, tokenizer)
    assert (ended.failure.boundary, ended.failure.kind) == (Boundary.AGENT, "RuntimeError") and live == 0


def test_a_silent_engine_is_the_engines_failure_and_the_box_is_closed_before_it_is_told(task, tokenizer):
    generate = SilentEngine(None).generate
    ended, engine, live, took_s = trial(task, tokenizer, generate=generate, timeout_s=0.5)
    assert ended.stop_reason is StopReason.FAILED
    assert (ended.failure.boundary, ended.failure.retryable) == (Boundary.ENGINE, True)
    assert engine.boxes_live_when_told == [0] and live == 0 and took_s < 20


def test_a_trial_ends_at_its_own_deadline_and_says_where_it_was(task, tokenizer):
    (task.path / "environment" / "Dockerfile").write_text("FROM debian\nRUN sleep 50\n")
    ended, _, live, took_s = trial(task, tokenizer, deadline_s=1.0)
    assert (ended.failure.kind, ended.failure.boundary) == ("TrialOverdue", Boundary.SANDBOX)
    assert "in phase open" in ended.failure.message and live == 0 and took_s < 25


def test_a_second_cut_does_not_break_into_the_first_ones_clean_up(task, tokenizer):
    (task.path / "environment" / "Dockerfile").write_text("FROM debian\nRUN sleep 50\n")

    async def cut_twice(runner):
        while not runner._sandbox._boxes:
            await asyncio.sleep(0.02)
        await runner.cut(["trial"])
        await asyncio.sleep(0.005)
        (work,) = runner._live.values()
        await runner.cut(["trial"])
        assert work.cancelling() == 1

    ended, _, live, _ = trial(task, tokenizer, during=cut_twice)
    assert ended.stop_reason is StopReason.CUT and ended.failure is None and live == 0


def test_a_trial_in_flight_says_what_it_waits_for(task, tokenizer):
    async def look(runner):
        while (states := [one.state for one in runner.live()]) != ["generate"]:
            assert set(states) <= {"queue", "open", "terminal"}
            await asyncio.sleep(0.02)
        (one,) = runner.live()
        assert (one.trial_id, one.task_id, one.num_turns) == ("trial", "task", 0)
        assert 0 <= one.state_s <= one.age_s
        await runner.cut(["trial"])
        while runner.live():
            await asyncio.sleep(0.02)

    ended, _, _, _ = trial(task, tokenizer, generate=SilentEngine(None).generate, during=look)
    assert ended.stop_reason is StopReason.CUT


def test_a_refused_request_is_the_engines_failure_and_not_tried_again(task, tokenizer):
    async def refusing(input_ids, **request):
        raise EngineRefused("too long")

    ended, _, _, _ = trial(task, tokenizer, generate=refusing)
    assert (ended.failure.boundary, ended.failure.retryable) == (Boundary.ENGINE, False)


def good_answer(tokenizer, **changes):
    from t1core.records import Generation

    ids = np.append(tokenizer.encode("ls"), np.int32(tokenizer.im_end)).astype(np.int32)
    fields = {
        "output_ids": ids,
        "output_logprobs": np.full(len(ids), -1.0, np.float32),
        "routed_experts": None,
        "routed_experts_start": 0,
        "finish_reason": "stop",
        "weight_version": 3,
        "output_versions": np.full(len(ids), 3, np.int32),
        "cached_tokens": 0,
    }
    return Generation(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"output_ids": np.array([5, 5, 9000], np.int32)},
            "output_ids span 5..9000, and the vocabulary has 300",
        ),
        ({"output_ids": np.array([5, -1, 7], np.int32)}, "output_ids span -1..7"),
        ({"output_ids": np.zeros(0, np.int32)}, "0 output_ids, 3 output_logprobs"),
        ({"output_logprobs": np.array([-1, np.nan, -1], np.float32)}, "output_logprobs span nan..nan"),
        ({"output_logprobs": np.array([-1, 0.5, -1], np.float32)}, "output_logprobs span -1.0..0.5"),
        ({"output_versions": np.array([3, 2, 3], np.int32)}, "output_versions fall"),
        ({"finish_reason": "done"}, "finish_reason='done'"),
        (
            {name: np.zeros(33, np.int32) for name in ("output_ids", "output_logprobs", "output_versions")},
            "33 tokens where max_new_tokens=32",
        ),
    ],
)
def test_garbage_is_the_engines_failure_and_none_of_it_becomes_a_call(task, tokenizer, changes, words):
    assert len(good_answer(tokenizer).output_ids) == 3, "the cases are written for three tokens"

    async def garbling(input_ids, **request):
        return good_answer(tokenizer, **changes)

    ended, _, live, _ = trial(task, tokenizer, generate=garbling)
    failure = ended.failure
    assert (failure.boundary, failure.kind, failure.retryable) == (Boundary.ENGINE, "EngineGarbled", True)
    assert words in failure.message and "call trial/0" in failure.message
    assert (ended.calls, ended.reward, live) == ((), None, 0)


def test_a_good_answer_is_none_of_these(tokenizer):
    asked = {"sampling": SamplingParams(max_new_tokens=3), "request_id": "r", "vocab_size": 300}
    check_answer(good_answer(tokenizer), **asked)
    check_answer(good_answer(tokenizer, output_versions=np.array([2, 2, 3], np.int32)), **asked)
    nothing = {name: np.zeros(0) for name in ("output_ids", "output_logprobs", "output_versions")}
    check_answer(good_answer(tokenizer, finish_reason="abort", **nothing), **asked)


def test_a_grader_that_cannot_start_is_the_verifiers_failure():
    state = _Trial(None)
    state.phase, state.boundary = "grade", Boundary.VERIFIER
    state.fail(SandboxUnavailable("no namespaces", fix="allow them"))
    assert (state.failure.boundary, state.failure.retryable) == (Boundary.VERIFIER, True)
    state.phase, state.boundary = "open", Boundary.SANDBOX
    state.fail(SandboxUnavailable("no bubblewrap", fix="install it"))
    assert state.failure.boundary is Boundary.SANDBOX


def test_calls_whose_order_is_unresolved_are_the_agents_failure_and_not_tried_again():
    state = _Trial(None)
    state.phase, state.boundary = "assemble", Boundary.OURS
    state.fail(UnresolvedRetry("two answers"))
    assert (state.failure.boundary, state.failure.retryable) == (Boundary.AGENT, False)


def test_a_tasks_own_time_is_kept_below_the_cap_and_cut_at_it(task, tokenizer):
    generate = SilentEngine(None).generate
    ended, _, _, _ = trial(replace(task, agent_timeout_s=0.4), tokenizer, generate=generate, timeout_s=60.0)
    assert ended.timings_s["agent_budget"] == 0.4 and "of the trial's 0.4 s" in ended.failure.message
    ended, _, _, _ = trial(replace(task, agent_timeout_s=900.0), tokenizer, generate=generate, timeout_s=0.4)
    assert ended.timings_s["agent_budget"] == 0.4


def test_missing_routes_abort_the_rollout_and_name_the_engine(task, tokenizer, monkeypatch):
    async def graded(*_, is_last):
        return StageGrade(Grade(0.5, RewardSource.CTRF, passed=1, total=2, solved=False, tests=()), False)

    monkeypatch.setattr(TrialRunner, "_grade", graded)
    with pytest.raises(MissingRoutes, match="engine 7: trial trial: the engine returned no routes"):
        trial(task, tokenizer, generate=one_word(tokenizer))


FILLER = "echo done > work; head -c 30M /dev/zero > f; sleep 20"


@pytest.mark.parametrize(
    ("line", "stop"),
    [
        (FILLER, StopReason.BOX_BROKEN),
        ("echo done > work; python3 -c 'bytearray(900 << 20)'", StopReason.MAX_TURNS),
    ],
    ids=["disk", "memory"],
)
def test_an_agent_that_passes_a_limit_of_its_box_is_graded_and_not_tried_again(
    task, tokenizer, monkeypatch, line, stop
):
    monkeypatch.setattr(TrialRunner, "_assemble", lambda *_: ())
    (task.path / "tests").mkdir()
    (task.path / "tests" / "test_outputs.py").write_text(
        "import pathlib\ndef test_a(): assert pathlib.Path('/app/work').exists()\n"
    )
    typed = render_response((Command(line + "\n", 30.0),), analysis="a", plan="p", task_complete=False)
    ended, _, live, _ = trial(
        task,
        tokenizer,
        generate=saying(tokenizer, typed),
        limits={"max_wait_s": 40.0, "max_new_tokens": 400},
        storage_mb=20,
        grades=True,
    )
    assert ended.failure is None
    assert (ended.stop_reason, live) == (stop, 0)
    assert (ended.grade.passed, ended.reward) == (1, 0.05)
    assert [turn.commands for turn in ended.turns] == [((line + "\n", 30.0),)]
    if stop is StopReason.BOX_BROKEN:
        assert "its limit is 20 MB" in ended.turns[0].screen


def test_a_box_that_is_broken_before_the_first_turn_is_the_tasks_failure(task, tokenizer):
    (task.path / "environment" / "Dockerfile").write_text(
        "FROM debian\nRUN head -c 30M /dev/zero > /app/f; sleep 5\n"
    )
    ended, _, live, _ = trial(task, tokenizer, generate=one_word(tokenizer), storage_mb=20)
    assert (ended.failure.boundary, ended.failure.kind, ended.failure.retryable) == (
        Boundary.TASK,
        "BoxBroken",
        False,
    )
    assert live == 0


def test_the_engine_forgets_a_trial_that_ends_between_two_steps(task, tokenizer, monkeypatch):
    for name in ("one", "two"):
        (task.path / "steps" / name / "workdir").mkdir(parents=True)
    (task.path / "steps" / "two" / "workdir" / "setup.sh").write_text("exit 3\n")
    steps = tuple(
        replace(task, step_name=name, workdir_files=task.path / "steps" / name / "workdir")
        for name in ("one", "two")
    )

    async def graded(*_, **__):
        return StageGrade(Grade(0.05, RewardSource.CTRF, 1, 1, True, (), declared=1.0), False)

    monkeypatch.setattr(TrialRunner, "_grade", graded)
    ended, engine, live, _ = trial(replace(task, steps=steps), tokenizer, generate=one_word(tokenizer))
    assert "setup.sh ended with 3" in ended.failure.message and live == 0
    assert engine.boxes_live_when_told == [0]  # told once, when the box was gone


def one_word(tokenizer):
    return saying(tokenizer, "")


def saying(tokenizer, text):
    import numpy as np

    from t1core.records import Generation

    async def generate(input_ids, **request):
        ids = np.append(tokenizer.encode(text), np.int32(tokenizer.im_end)).astype(np.int32)
        zeros = np.zeros(len(ids), np.int32)
        return Generation(ids, zeros.astype(np.float32), None, 0, "stop", 0, zeros, 0)

    return generate
