"""A policy that goes on from a recorded turn: a real engine, real boxes, the recorded tokens as its history."""

import asyncio

import numpy as np
import pytest
from typer.testing import CliRunner

from t1core.campaign.continuing import Recorded, continue_trial, recorded_calls
from t1core.campaign.evaluation import evaluate_policy
from t1core.campaign.report import stored_trial
from t1core.cli import app
from t1core.config import load_config
from t1core.records import SamplingParams
from t1core.store import Run

QUICK = [
    "agent.max_turns=1", "evaluation.max_turns=3", "evaluation.max_new_tokens=24", "evaluation.attempts=1",
    "evaluation.tasks_per_split=1", "rollout.max_live_trials=4",
]  # fmt: skip


@pytest.fixture
def run(actor, pool, settings):
    config = load_config("smoke", [*settings, *QUICK])
    return Run.open(evaluate_policy(config, actor, pool=pool, split="heldout", say=lambda line: None).path)


def test_a_policy_goes_on_from_the_very_tokens_that_were_recorded(run, actor, monkeypatch):
    trial = run.trials("eval").iloc[0]
    stored = stored_trial(run.path, trial["trial_id"])
    recorded = recorded_calls(run, stored, before=len(stored.turns))
    assert len(stored.turns) == 3
    said = []
    result = continue_trial(run, stored, policy=actor, from_turn=1, task=None, seed=7, say=said.append)
    turns, calls = result.trajectory.turns, result.trajectory.calls
    assert said[0].startswith("turn 0: as recorded"), said
    assert "--- turn 1, the policy's" in said and any(line.startswith("reward ") for line in said), said
    # The first answer is the recorded one; what follows extends it, and is another draw than the recorded.
    assert turns[0].response == stored.turns["response"][0]
    assert np.array_equal(calls[0].completion_token_ids, recorded[0].completion_token_ids)
    start = np.concatenate([calls[0].prompt_token_ids, calls[0].completion_token_ids])
    assert np.array_equal(calls[1].prompt_token_ids[: len(start)], start)
    assert not np.array_equal(calls[1].completion_token_ids, recorded[1].completion_token_ids)
    # Nothing of it is stored, and a replay to the end asks no policy at all.
    assert len(Run.open(run.path).trials()) == 1
    told = CliRunner().invoke(
        app, ["replay", str(run.path), trial["trial_id"], "--from-turn", "3", "--policy", str(actor)]
    )
    assert told.exit_code == 0, told.output
    assert "policy's" not in told.output and "turn 2: as recorded" in told.output
    with pytest.raises(ValueError, match="--from-turn 9: the trial has turns 0, 1, 2"):
        continue_trial(run, stored, policy=actor, from_turn=9, task=None, seed=0, say=print)


def test_recorded_calls_are_given_out_once_and_in_order_and_then_the_engine_is_asked():
    asked = []

    class Engine:
        async def generate(self, input_ids, **request):
            asked.append(request)

        async def abort_request(self, request_id):
            return True

        async def release_session(self, session_id):
            asked.append(session_id)

    class Call:
        completion_token_ids = np.array([4, 5], np.int32)
        logprobs = np.zeros(2, np.float32)
        finish_reason, weight_version, output_versions = "length", 3, np.full(2, 3, np.int32)

    async def go():
        engine = Recorded([Call], Engine())
        given = {"sampling": SamplingParams(max_new_tokens=1), "session_id": "s", "routed_experts_start": 8}
        first = await engine.generate(np.arange(3), request_id="t/0", **given)
        assert first.output_ids.tolist() == [4, 5] and first.finish_reason == "length" and not asked
        await engine.generate(np.arange(9), request_id="t/1", **given)
        assert asked[0]["request_id"] == "t/1" and "routed_experts_start" not in asked[0]
        assert await engine.abort_request("t/1")
        await engine.release_session("s")
        assert asked[-1] == "s"

    asyncio.run(go())
