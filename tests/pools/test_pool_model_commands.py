"""`t1 pool llm-audit` and `t1 pool density` as they are typed, and the audit by a model of our own engine."""

import asyncio
import contextlib
import json
import threading
import urllib.request

import pytest
from typer.testing import CliRunner

from t1core.analysis import RewardDensity
from t1core.cli import app
from t1core.pools.llm.audit import read_audit
from t1core.pools.verdict import Check, Outcome, Verdict, standing_of
from t1core.tasks.index import content_hash
from t1core.tasks.practice.pool import oracle
from tests.analysis.counted_by_hand import write_trials
from tests.pools.scripted_endpoint import MODEL, Say, audit_answer, scripted
from tests.rollout.served import nano_policy, serve


@contextlib.contextmanager
def served(answer):
    """The address of a scripted endpoint in another thread: the command has an event loop of its own."""
    started, state, loop = threading.Event(), [], asyncio.new_event_loop()

    async def serve():
        async with scripted(answer) as server:
            state.extend((server.url, stop := asyncio.Event()))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    started.wait()
    try:
        yield state[0]
    finally:
        loop.call_soon_threadsafe(state[1].set)
        thread.join()


def small_pool(folder, number=2):
    for index in range(number):
        oracle("write", seed=0, index=index, level=1)[0].write(folder / f"write-{index}")
    return folder


def command(pool, url, output, *more, model=MODEL):
    words = ["pool", "llm-audit", str(pool), "--endpoint", url, "--model", model, "--output", str(output)]
    return CliRunner().invoke(app, [*words, *more])


def test_the_audit_is_told_with_its_cost_agreement_and_repairs(tmp_path):
    pool, output = small_pool(tmp_path / "pool"), tmp_path / "audit.jsonl"
    repair = json.dumps({"instruction": "Write the words to the files, each.", "changes": "plainer"})
    answers = iter([Say(audit_answer(3)), Say(repair), Say(audit_answer(5)), Say(audit_answer(5))])
    checks = (Check("solution", Outcome.PASSED),)
    executed = tmp_path / "executed.jsonl"
    lines = [
        Verdict(
            f"write-{i}", content_hash(pool / f"write-{i}"), "write", standing_of(checks), checks
        ).to_line()
        for i in range(2)
    ]
    executed.write_text("\n".join(lines) + "\n")
    with served(lambda body: next(answers)) as url:
        more = ("--repaired", str(tmp_path / "new"), "--executed", str(executed), "--parallel", "1")
        told = command(pool, url, output, *more)
    assert told.exit_code == 0, told.output
    assert "tasks      2: 2 accept, 0 borderline, 0 reject, 0 failed" in told.output
    assert "cost       4 calls, 400 prompt and 40 completion tokens" in told.output
    assert "repairs    1 tasks tried, 1 raised by it" in told.output
    assert "agreement with the executable audit" in told.output and "solution incorrect" in told.output
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["write-0"]


def test_a_task_without_a_verdict_ends_the_command_with_1_and_stays_in_the_file(tmp_path):
    pool, output = small_pool(tmp_path / "pool", 1), tmp_path / "audit.jsonl"
    with served([Say("hm")]) as url:
        told = command(pool, url, output, "--max-retries", "0")
    assert told.exit_code == 1
    assert "1 tasks given up at: no_json" in told.output
    assert [verdict.standing for verdict in read_audit(output)[1]] == ["failed"]


def test_density_is_told_and_written(tmp_path):
    path = write_trials(tmp_path / "trials.json")
    told = CliRunner().invoke(app, ["pool", "density", str(path), "--output", str(tmp_path / "out.json")])
    assert told.exit_code == 0, told.output
    assert "source     made up" in told.output and "bits_counted" in told.output
    assert RewardDensity.from_json((tmp_path / "out.json").read_text()).counts["trials"] == 16


@pytest.mark.slow
def test_what_a_tiny_model_behind_t1_serve_says_is_reported_as_the_failure_it_is(tmp_path):
    """A random nano policy answers with no JSON at all; the server is told that each conversation is over."""
    model = nano_policy(tmp_path / "nano")
    pool, output = small_pool(tmp_path / "pool"), tmp_path / "audit.jsonl"
    with serve(model, "--context-tokens", "8192", "--max-new-tokens", "32") as address:
        more = ("--max-retries", "1", "--max-tokens", "32", "--timeout", "300")
        told = command(pool, f"{address}/v1", output, *more, model="nano")
        with urllib.request.urlopen(f"{address}/health") as reply:
            num_open = json.load(reply)["open_sessions"]
    assert told.exit_code == 1, told.output
    assert "tasks      2: 0 accept, 0 borderline, 0 reject, 2 failed" in told.output
    assert "cost       4 calls" in told.output
    _, verdicts = read_audit(output)
    assert {verdict.error_kind for verdict in verdicts} <= {"no_json", "cut"}
    assert all(v.cost.prompt_tokens > 0 and v.cost.completion_tokens > 0 for v in verdicts)
    assert num_open == 0
