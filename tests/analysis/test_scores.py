"""Scores by hand: pass@1 and dense reward over attempts, what is missing, what can be compared."""

import json
from dataclasses import replace

import numpy as np
import pytest

from t1core.analysis.scores import differences, make_score, score_line, score_table
from t1core.records import (
    Boundary,
    Failure,
    Grade,
    ModelCall,
    RewardSource,
    Score,
    StopReason,
    Trajectory,
)


def attempt(trial_id, task, *, passed=None, version=7, failure=None):
    grade = None
    if passed is not None:
        grade = Grade(passed / 20, RewardSource.CTRF, passed, 4, passed == 4, ())
    call = ModelCall(
        f"{trial_id}/0", trial_id, None, np.zeros(1, np.int32), np.zeros(2, np.int32), np.zeros(2, np.float32),
        "stop", version, np.full(2, version, np.int32), None, 0,
    )  # fmt: skip
    stop = StopReason.COMPLETED if failure is None else StopReason.FAILED
    return Trajectory(trial_id, task, "f", "heldout", 4, 0, stop, failure, (), (call,), grade)


def score(trajectories, *, asked=("a", "a", "b", "b"), **fields):
    known = {
        "attempts": 2, "step": 3, "split": "heldout", "protocol": "p", "headline": "resolved",
        "harness": {"temperature": 1.0}, "limits": {"max_turns": 8}, "pool": {"digest": "x"},
        "weights": {"checksum": "c"},
    }  # fmt: skip
    return make_score(trajectories, asked=asked, **(known | fields))


# Task a: solved once of twice, 4 and 1 tests. Task b: never, 2 and 2 tests.
WHOLE = [
    attempt("e-0", "a", passed=4), attempt("e-0-1", "a", passed=1), attempt("e-1", "b", passed=2),
    attempt("e-1-1", "b", passed=2),
]  # fmt: skip


def test_pass_at_one_and_dense_reward_are_means_over_tasks():
    found = score(WHOLE)
    assert (found.resolved, found.dense) == (0.25, pytest.approx((0.125 + 0.1) / 2))
    # Tasks at 0.5 and 0: deviation 0.35355, over the root of two tasks.
    assert found.resolved_se == pytest.approx(0.25)
    assert found.is_complete and found.weights == {"checksum": "c", "version": 7}
    assert found.value == 0.25 and replace(found, headline="dense").value == found.dense
    assert "INCOMPLETE" not in score_line(found)


def test_an_attempt_that_did_not_run_makes_the_score_incomplete_and_is_named():
    gone = Failure(Boundary.SANDBOX, "BoxDied", "gone", retryable=True)
    found = score([*WHOLE[:3], attempt("e-1-1", "b", failure=gone)])
    assert not found.is_complete and (found.num_ran, found.num_asked) == (3, 4)
    assert found.unfinished == ("b: sandbox BoxDied: gone",)
    assert score_line(found).startswith("INCOMPLETE")
    # A task of which nothing is left is missed all the same.
    assert not score(WHOLE[:2]).is_complete


def test_a_retry_stands_in_for_what_it_repeats():
    gone = Failure(Boundary.ENGINE, "EngineDead", "gone", retryable=True)
    found = score([*WHOLE[:3], attempt("e-1-1", "b", failure=gone), attempt("e-1-1~1", "b", passed=2)])
    assert found.is_complete and found.num_ran == 4 and found.unfinished == ()


def test_a_score_is_of_one_weight_version():
    with pytest.raises(AssertionError, match=r"weight versions \[7, 8\]"):
        score([*WHOLE[:3], attempt("e-1-1", "b", passed=2, version=8)])


def test_scores_under_different_harness_or_limits_are_flagged_and_other_weights_are_not():
    mine = score(WHOLE)
    assert differences(mine, score(WHOLE, weights={"checksum": "other"}, step=9)) == []
    other = score(WHOLE, harness={"temperature": 0.1}, limits={"max_turns": 500}, pool={"digest": "y"})
    assert differences(mine, other) == [
        "harness.temperature: 1.0 and 0.1", "limits.max_turns: 8 and 500", "pool.digest: 'x' and 'y'",
    ]  # fmt: skip
    assert differences(mine, score(WHOLE[:3])) == ["incomplete: 3 of 4 attempts"]
    table = score_table({"one": [mine], "two": [other], "three": [mine]})
    assert table["not_comparable"].tolist()[0::2] == ["", ""]
    assert "max_turns: 8 and 500" in table["not_comparable"][1]


def test_a_score_of_nothing_is_no_number():
    found = score([], asked=("a",))
    assert np.isnan(found.resolved) and np.isnan(found.dense_se) and not found.is_complete
    assert found.weights == {"checksum": "c"}


def test_a_score_comes_back_from_a_file_as_it_was():
    found = score(WHOLE)
    assert Score.from_dict(json.loads(json.dumps(found.to_dict()))) == found
