"""How a step's agents behaved, counted by hand."""

import math

import pytest

from t1core.controller.conduct import measure_conduct, repeated_commands, tests_per_extra_turn
from t1core.metrics import check_names
from t1core.records import Grade, RewardSource, StopReason, Trajectory, Turn
from t1core.rollout.trial import TrialResult

tests_per_extra_turn.__test__ = False


def turn(*keys, repairs=(), expired=False, summary=False, lost=False):
    return Turn(
        0, "c", "", tuple((key, 0.1) for key in keys), False, False, "", "", 0.0, 0.0, 0.0,
        repairs=repairs, is_wait_expired=expired, is_summary=summary, is_summary_lost=lost,
    )  # fmt: skip


def trial(*turns, passed=0, family="f", stop=StopReason.COMPLETED, capped=False):
    grade = Grade(passed / 20, RewardSource.CTRF, passed, 9, False, ())
    trajectory = Trajectory("t", "task", family, "train", 9, 0, stop, None, turns, (), grade)
    return TrialResult(trajectory, (), is_time_capped=capped)


def test_a_step_is_counted_by_hand():
    accepted = [
        trial(turn("ls\n"), turn("ls\n", expired=True), turn(summary=True), turn("ls\n"), turn(), passed=2),
        trial(
            turn("a\n", repairs=("x",)), turn(summary=True, lost=True), turn("b\n"), passed=1,
            stop=StopReason.AGENT_TIMEOUT, capped=True,
        ),
    ]  # fmt: skip
    metrics = measure_conduct(accepted)
    check_names(metrics)
    assert metrics == {
        "agent/summaries": 2,
        "agent/lost_summary_frac": 0.5,
        "agent/summary_success_frac": 0.5,
        "agent/repeated_command_frac": 2 / 5,
        "agent/wait_expired_frac": 1 / 5,
        "agent/no_command_frac": 1 / 6,
        "agent/repaired_frac": 1 / 6,
        "agent/timeout_frac": 0.5,
        "agent/capped_time_frac": 0.5,
        "agent/tests_passed_mean": 1.5,
        "agent/tests_per_extra_turn": pytest.approx(0.5),  # 4 turns passed 2, 2 turns passed 1
    }


def test_only_the_very_same_keys_count_as_repeated_and_waiting_is_no_command():
    assert repeated_commands([turn("a\n", "b\n"), turn("a\n"), turn(""), turn(""), turn("a\n", "b\n")]) == [
        False,
        False,
        True,
    ]


def test_the_slope_is_taken_within_families():
    # Within each family a turn more brings one test; the long family passes fewer, which must not count.
    trials = [trial(*[turn()] * n, passed=n - 1, family="short") for n in (1, 3)]
    trials += [trial(*[turn()] * n, passed=n - 9, family="long") for n in (9, 11)]
    assert tests_per_extra_turn([item.trajectory for item in trials]) == pytest.approx(1.0)
    assert math.isnan(tests_per_extra_turn([trials[0].trajectory]))
