"""Why turns grow, on numbers that T1 quotes for its own runs."""

import pytest

from t1core.analysis.turn_growth import Cause, turn_growth


def run(*, turns, passed, lost=(0.0, 0.0)):
    """Twelve steps that go from the first values to the last in between."""
    steps = []
    for half in (0, 1):
        for _ in range(6):
            steps.append(
                {
                    "rollout/turns_mean": turns[half],
                    "agent/tests_passed_mean": passed[half],
                    "agent/lost_summary_frac": lost[half],
                }
            )
    return steps


def test_turns_that_bring_tests_are_useful_work():
    # 10.4 to 20.9 turns while the reward goes from 0.250 to 0.345 of 20 tests: 1.9 / 10.5 against 5 / 10.4.
    growth = turn_growth(run(turns=(10.4, 20.9), passed=(5.0, 6.9)))
    assert growth.cause is Cause.USEFUL_WORK
    assert growth.tests_per_extra_turn == pytest.approx(1.9 / 10.5)


def test_one_test_for_twice_the_turns_is_farming():
    growth = turn_growth(run(turns=(25.0, 50.0), passed=(4.0, 5.0)))
    assert growth.cause is Cause.FARMING and growth.tests_per_extra_turn == pytest.approx(0.04)


def test_turns_that_grow_while_summaries_are_lost_are_context_loss_whatever_they_bring():
    growth = turn_growth(run(turns=(22.0, 30.0), passed=(5.0, 8.0), lost=(0.0, 0.6)))
    assert growth.cause is Cause.CONTEXT_LOSS
    assert "22.0 to 30.0: likely context loss" in str(growth) and "60% of trials lost a summary" in str(
        growth
    )


@pytest.mark.parametrize("turns", [(20.0, 24.9), (2.0, 2.9), (20.0, 10.0)])
def test_turns_that_hardly_grow_raise_no_alarm(turns):
    assert turn_growth(run(turns=turns, passed=(5.0, 5.0))) is None


def test_a_short_run_raises_no_alarm():
    assert turn_growth(run(turns=(10.0, 20.0), passed=(5.0, 5.0))[2:-1]) is None
