"""Watching a run: what it says of steps, rates, time left and trials in flight, and that it never touches the run."""

import asyncio
import os
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from t1core.campaign.live import telling
from t1core.campaign.tail import overview_lines, step_line, watch
from t1core.cli import app
from t1core.cluster import PartDied
from t1core.records import TrialInFlight
from t1core.store import InFlight, MetricRow, Run, RunState
from tests.notebooks.run_by_hand import write_run


def _row(step, **values):
    base = {"time/step_s": 10.0, "rollout/launched": 20, "train/tokens": 500, "reward/mean": 0.1}
    return MetricRow(step, "train", 0.0, base | values)


def _live(state, *, age_s, state_s=1.0, name="t"):
    return TrialInFlight(name, "copy-1", 3, state, state_s, age_s, num_turns=2, sampled_tokens=40)


@pytest.fixture
def running(tmp_path):
    run = Run.create(tmp_path, campaign="demo", run_name="r", config={}, provenance={}, num_steps=10)
    run.update_status(state=RunState.RUNNING, step=3, phase="step 4 of 10")
    return run


def test_rates_and_time_left_are_those_of_the_last_steps(running):
    rows = [_row(0, **{"time/step_s": 1000.0}), *(_row(step) for step in range(1, 11))]
    told = overview_lines(running.status(), rows, None, now=0.0)
    assert told[0] == "running: 4 of 10 steps, attempt 1, step 4 of 10"
    # Ten steps of 10 s: 200 trials and 5000 tokens in 100 s. Six steps are left: a minute.
    assert told[1] == "rates over the last 10 steps: 10.0 s a step, 120.0 trials/min, 50.0 trained tokens/s"
    assert told[2] == "time left: 1.0 min at this rate, without held-out evaluation"


def test_a_step_that_was_repeated_after_a_resume_counts_once(running):
    rows = [_row(0, **{"time/step_s": 90.0}), _row(0)]
    assert "over the last 1 steps: 10.0 s a step" in overview_lines(running.status(), rows, None, now=0.0)[1]


def test_trials_in_flight_are_counted_by_state_and_the_slowest_named(running):
    trials = [_live("generate", age_s=5, name="a"), _live("generate", age_s=50, state_s=45, name="b")]
    trials += [_live("terminal", age_s=9, name=name) for name in "cde"]
    told = overview_lines(running.status(), [], InFlight(100.0, tuple(trials)), now=101.0)
    assert "trials in flight: terminal 3, generate 2" in told
    slowest = [line for line in told if "slowest" in line]
    assert len(slowest) == 3
    assert slowest[0] == "  slowest: b, task copy-1: 50 s, 2 turns, 40 tokens; in generate for 45 s"
    late = overview_lines(running.status(), [], InFlight(100.0, tuple(trials)), now=160.0)
    assert any("(seen 60 s ago)" in line for line in late)


def test_a_run_whose_writer_is_gone_says_so_and_promises_nothing(running):
    gone = replace(running.status(), pid=2**22 - 1, pid_started=1.0)
    told = overview_lines(gone, [_row(3)], InFlight(0.0, (_live("open", age_s=1),)), now=1.0)
    assert told[0].startswith("died without a word: 4 of 10 steps")
    assert not any("time left" in line or "in flight" in line for line in told)


def test_a_line_leaves_out_what_was_not_recorded_and_names_held_out_splits(running):
    status = running.status()
    assert step_line(_row(3, **{"critic/explained_variance": float("nan")}), status) == (
        "step   4/10  reward 0.100  s/step 10.0"
    )
    held = MetricRow(0, "eval", 0.0, {"eval/heldout/solved_frac": 0.25, "eval/heldout/count": 8})
    assert step_line(held, status) == "held out, solved after step 0: heldout 25.0%"


def test_the_command_reads_a_finished_run_and_leaves_it_as_it_was(tmp_path):
    path = write_run(tmp_path).path
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    told = CliRunner().invoke(app, ["tail", str(path)])
    assert told.exit_code == 0, told.output
    assert "step   4/" in told.output and "finished: 4 of" in told.output
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_where_a_person_looks_on_the_same_is_drawn_and_ends_with_the_run(tmp_path, monkeypatch, capsys):
    run = write_run(tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    watch(run, once=False, say=lambda line: pytest.fail("said beside what is drawn"))
    told = capsys.readouterr().out
    assert "step   4/" in told and "finished: 4 of" in told


def test_a_living_run_is_told_once_with_its_trials_in_flight(running):
    running.record_live([_live("grade", age_s=3)])
    told = CliRunner().invoke(app, ["tail", str(running.path), "--once"])
    assert told.exit_code == 0, told.output
    assert "trials in flight: grade 1" in told.output
    assert running.status().pid == os.getpid()


def test_trials_in_flight_are_told_while_the_loop_runs_and_a_failing_question_does_not_end_it(running):
    answers = [[_live("open", age_s=1)], [_live("grade", age_s=2)]]

    async def ask():
        if not answers:
            raise OSError("disk full")
        return answers.pop(0)

    async def loop():
        seen = []
        async with telling(running, ask, period_s=0.01):
            for _ in range(200):
                await asyncio.sleep(0.01)
                update = next(iter(Run.open(running.path).follow()))
                if update.live is not None:
                    seen.append(update.live.trials[0].state)
        return seen

    seen = asyncio.run(loop())
    assert seen[-1] == "grade" and len(seen) > 10


def test_a_fault_of_ours_in_the_telling_ends_the_work_at_once(running):
    ended = []

    async def ask():
        raise TypeError("a fault of ours")

    async def loop():
        async with telling(running, ask, period_s=0.01):
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(True)

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(asyncio.wait_for(loop(), 20))
    assert caught.group_contains(TypeError, match="a fault of ours") and ended == [True]


def test_a_part_that_is_lost_ends_the_telling_and_leaves_the_work_alone(running, caplog):
    async def ask():
        raise PartDied("trial host 0 died")

    async def loop():
        async with telling(running, ask, period_s=0.01):
            await asyncio.sleep(0.1)
        return "done"

    assert asyncio.run(loop()) == "done" and "trial host 0 died" in caplog.text
