"""Trial directories of Harbor's, read for our viewer and written for Harbor's."""

import json
import math

import pytest

from t1core.store import read_harbor_trial

RESULT = {
    "task_name": "greet",
    "trial_name": "greet__x",
    "source": "demo",
    "agent_info": {"name": "terminus-2", "version": "2.0.0"},
    "verifier_result": {"rewards": {"reward": 0.5}},
    "started_at": "2026-01-01T00:00:00Z",
    "finished_at": "2026-01-01T00:01:00Z",
    "agent_execution": {"started_at": "2026-01-01T00:00:10Z", "finished_at": "2026-01-01T00:00:40Z"},
}
TRAJECTORY = {
    "schema_version": "ATIF-v1.8",
    "steps": [
        {"step_id": 1, "source": "user", "message": "do it", "timestamp": "2026-01-01T00:00:10Z"},
        {"step_id": 2, "source": "agent", "message": "old", "is_copied_context": True},
        {
            "step_id": 3,
            "source": "agent",
            "timestamp": "2026-01-01T00:00:12Z",
            "message": "Analysis: a",
            "tool_calls": [
                {
                    "tool_call_id": "call_0_1",
                    "function_name": "bash_command",
                    "arguments": {"keystrokes": "ls\\n", "duration": 0.1},
                }
            ],
            "observation": {"results": [{"content": "a.txt"}]},
        },
        {
            "step_id": 4,
            "source": "agent",
            "timestamp": "2026-01-01T00:00:15Z",
            "message": [{"type": "text", "text": "done"}, {"type": "image"}],
            "tool_calls": [{"tool_call_id": "c", "function_name": "mark_task_complete", "arguments": {}}],
        },
    ],
    "final_metrics": {"total_completion_tokens": 12},
}
CTRF = {
    "results": {
        "tests": [
            {"name": "t::a", "status": "passed", "duration": 0.1},
            {"name": "t::b", "status": "failed", "trace": "no"},
        ]
    }
}


@pytest.fixture
def directory(tmp_path):
    for folder in ("agent", "verifier"):
        (tmp_path / folder).mkdir()
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    (tmp_path / "agent" / "trajectory.json").write_text(json.dumps(TRAJECTORY))
    (tmp_path / "verifier" / "ctrf.json").write_text(json.dumps(CTRF))
    (tmp_path / "verifier" / "test-stdout.txt").write_text("1 passed, 1 failed")
    return tmp_path


def test_a_trial_of_harbors_is_read_with_its_turns_tests_and_times(directory):
    stored = read_harbor_trial(directory)
    assert stored.turns["response"].tolist() == ["Analysis: a", "done\n[image]"]
    assert stored.turns["commands"][0] == [{"keystrokes": "ls\\n", "duration_s": 0.1}]
    assert stored.turns["observation"].tolist() == ["a.txt", ""]
    assert stored.turns["is_completion_claim"].tolist() == [False, True]
    assert stored.turns["ended_s"].tolist() == [2.0, 5.0]
    assert stored.tests["status"].tolist() == ["passed", "failed"] and stored.tests["message"][1] == "no"
    trial = stored.trial
    assert (trial["reward"], trial["passed"], trial["total"], trial["stop_reason"]) == (
        0.5,
        1,
        2,
        "completed",
    )
    assert (trial["time_agent_s"], trial["time_total_s"]) == (30.0, 60.0)
    assert stored.tokens is None


def test_a_trial_that_broke_early_is_read_with_what_there_is(directory):
    broken = {"exception_type": "AgentTimeoutError", "exception_message": "30 s"}
    (directory / "result.json").write_text(json.dumps({"trial_name": "t", "exception_info": broken}))
    for name in ("agent/trajectory.json", "verifier/ctrf.json", "verifier/test-stdout.txt"):
        (directory / name).unlink()
    trial = read_harbor_trial(directory).trial
    assert (trial["stop_reason"], trial["failure_kind"]) == ("agent_timeout", "AgentTimeoutError")
    assert math.isnan(trial["reward"]) and math.isnan(trial["time_agent_s"])


@pytest.mark.parametrize("report", ["", "{", "[]", '{"results": {"tests": [1]}}'])
def test_a_report_that_cannot_be_read_shows_no_tests(directory, report):
    (directory / "verifier" / "ctrf.json").write_text(report)
    assert read_harbor_trial(directory).tests.empty


def test_what_is_no_trial_and_what_is_no_atif_is_refused(directory, tmp_path_factory):
    with pytest.raises(ValueError, match=r"no result\.json"):
        read_harbor_trial(tmp_path_factory.mktemp("empty"))
    (directory / "agent" / "trajectory.json").write_text('{"schema_version": "v9"}')
    with pytest.raises(ValueError, match="not ATIF v1"):
        read_harbor_trial(directory)
