"""What earlier trials tell of a task, by hand."""

import json

import pytest

from t1core.records import Boundary, Failure, Grade, RewardSource, StopReason, Task, Trajectory
from t1core.rollout.estimates import TaskEstimates


def ended(task="a", *, seconds=10.0, passed=1, stop=StopReason.COMPLETED, failure=None):
    grade = None if stop is StopReason.CUT or failure else Grade(0.1, RewardSource.CTRF, passed, 4, False, ())
    return Trajectory(
        "id", task, "chain", "train", 4, 0, stop, failure, (), (), grade, timings_s={"total": seconds}
    )


def task(name, family="chain"):
    return Task(name, family, "train", None, "do", ("t",))


def test_durations_are_of_the_task_else_of_its_family_else_unknown():
    estimates = TaskEstimates()
    assert estimates.predicted_s(task("a")) is None
    estimates.observe(ended("a", seconds=10.0))
    estimates.observe(ended("a", seconds=20.0))
    assert estimates.predicted_s(task("a")) == pytest.approx(0.7 * 10 + 0.3 * 20)
    assert estimates.predicted_s(task("b")) == pytest.approx(13.0)
    assert estimates.predicted_s(task("c", "other")) is None


def test_a_cut_trial_took_at_least_as_long_as_predicted():
    estimates = TaskEstimates()
    estimates.observe(ended(seconds=30.0))
    estimates.observe(ended(seconds=2.0, stop=StopReason.CUT))
    assert estimates.predicted_s(task("a")) == pytest.approx(30.0)
    estimates.observe(ended(seconds=40.0, stop=StopReason.CUT))
    assert estimates.predicted_s(task("a")) == pytest.approx(33.0)


def test_what_is_known_of_a_task_does_not_reach_its_family_through_a_cut_trial():
    estimates = TaskEstimates(task_s={"a": 900.0}, family_s={"chain": 100.0})
    estimates.observe(ended(seconds=10.0, stop=StopReason.CUT))
    assert (estimates.task_s, estimates.family_s) == ({"a": 900.0}, {"chain": 100.0})


def test_progress_is_the_share_of_tests_passed_and_what_broke_says_nothing():
    estimates = TaskEstimates()
    assert estimates.uncertainty("a") == 1.0
    estimates.observe(ended(passed=4))
    assert estimates.uncertainty("a") == 0.0
    estimates.observe(ended(passed=0))
    assert estimates.progress == {"a": 0.7} and estimates.uncertainty("a") == pytest.approx(0.84)
    estimates.observe(ended(seconds=999.0, failure=Failure(Boundary.SANDBOX, "BoxDied", "gone")))
    assert estimates.progress == {"a": 0.7} and estimates.task_s == {"a": 10.0}
    assert TaskEstimates.from_dict(json.loads(json.dumps(estimates.to_dict()))) == estimates
