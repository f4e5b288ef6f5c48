"""Length shaping against the properties that T1 states and numbers worked by hand."""

import pytest

from t1core.verifier.reward import counted_reward
from t1core.verifier.shaping import (
    GradedTrial,
    LengthShaping,
    scaled_by_batch_maximum,
    shaped_rewards,
)


def _one(kind, passed, turns, total=30):
    shaping = LengthShaping(kind=kind)
    trial = GradedTrial(passed / 20, turns, passed == total, total)
    return shaped_rewards([trial], shaping=shaping)[0]


def test_the_quoted_dense_rewards():
    for passed, reward in ((10, 0.5), (2, 0.1), (40, 2.0), (55, 2.75)):
        assert counted_reward("dense", passed=passed, total=60).reward == pytest.approx(reward)


def test_the_ratio_variant_caps_a_part_at_four_tenths_and_a_whole_at_one():
    for passed, total, reward in ((0, 9, 0.0), (3, 10, 0.12), (9, 10, 0.36), (10, 10, 1.0), (1, 1, 1.0)):
        assert counted_reward("ratio", passed=passed, total=total).reward == pytest.approx(reward)


def test_five_tests_at_fifty_turns_are_below_four_at_a_healthy_length_under_the_discount_and_not_the_penalty():
    assert _one("multiplicative", 5, 50) == pytest.approx(0.1875)
    assert _one("additive", 5, 50) == pytest.approx(0.21)
    for healthy in (1, 10, 25):
        assert _one("multiplicative", 4, healthy) == _one("additive", 4, healthy) == pytest.approx(0.2)
    assert _one("multiplicative", 5, 50) < _one("multiplicative", 4, 25)
    assert _one("additive", 5, 50) > _one("additive", 4, 25)


def test_under_the_discount_one_more_test_at_fifty_turns_pays_only_below_four():
    for passed in range(2, 40):
        gain = _one("multiplicative", passed, 50, total=99) - _one("multiplicative", passed - 1, 25, total=99)
        if passed < 4:
            assert gain > 0
        elif passed == 4:
            assert gain == pytest.approx(0)
        else:
            assert gain < 0


def test_under_the_penalty_one_more_test_always_pays_and_turns_beyond_twice_the_healthy_number_cost_nothing():
    for passed in range(1, 40):
        assert _one("additive", passed, 400, total=99) > _one("additive", passed - 1, 1, total=99)
    assert _one("additive", 3, 50) == _one("additive", 3, 400)
    assert _one("additive", 3, 40) > _one("additive", 3, 50)


def test_the_discount_has_a_floor_and_without_a_test_passed_long_trials_lose_half_a_test():
    assert _one("multiplicative", 10, 75) == _one("multiplicative", 10, 500) == pytest.approx(0.25)
    assert _one("multiplicative", 0, 25) == 0.0
    assert _one("multiplicative", 0, 50) == _one("multiplicative", 0, 90) == pytest.approx(-0.025)


def test_the_bonus_ranks_solved_trials_with_as_many_tests_and_gives_the_rest_nothing():
    trials = [
        GradedTrial(0.25, 10, True, 5),
        GradedTrial(0.25, 30, True, 5),
        GradedTrial(0.25, 20, True, 5),
        GradedTrial(0.20, 2, False, 5),
        GradedTrial(0.10, 3, True, 2),
    ]
    got = shaped_rewards(trials, shaping=LengthShaping(kind="bonus"))
    # eta / S = 0.025; ranks 0, 2, 1 of m = 3; unsolved and alone in its size: unchanged.
    assert got == pytest.approx([0.275, 0.25, 0.2625, 0.20, 0.10])


def test_equal_turns_share_the_bonus():
    trials = [GradedTrial(0.25, 7, True, 5), GradedTrial(0.25, 7, True, 5)]
    assert shaped_rewards(trials, shaping=LengthShaping(kind="bonus")) == pytest.approx([0.2625, 0.2625])


def test_scaling_by_the_batch_maximum_makes_a_rewards_worth_depend_on_its_neighbours():
    assert scaled_by_batch_maximum([0.1, 0.2]) == pytest.approx([0.5, 1.0])
    assert scaled_by_batch_maximum([0.1, 2.0]) == pytest.approx([0.05, 1.0])
    assert scaled_by_batch_maximum([-0.025, 0.0125]) == pytest.approx([-1.0, 0.5])
    assert scaled_by_batch_maximum([0.0, 0.0]) == [0.0, 0.0] and scaled_by_batch_maximum([]) == []


def test_an_unknown_kind_names_the_choices():
    with pytest.raises(ValueError, match="choose none, bonus, additive or multiplicative"):
        _one("cubic", 1, 1)
