"""Rewards worked by hand."""

import pytest

from t1core.records import RewardSource
from t1core.verifier.reward import counted_reward, no_reward, uncounted_reward


def test_dense_counts_tests_over_the_scale_and_may_pass_one():
    assert counted_reward("dense", passed=10, total=20) == (0.5, RewardSource.CTRF)
    assert counted_reward("dense", passed=24, total=24).reward == 1.2
    assert counted_reward("dense", passed=0, total=3).reward == 0.0
    assert counted_reward("dense", passed=3, total=5, scale=5).reward == 0.6


def test_binary_is_all_or_nothing():
    assert counted_reward("binary", passed=5, total=5).reward == 1.0
    assert counted_reward("binary", passed=4, total=5).reward == 0.0
    assert counted_reward("binary", passed=0, total=0).reward == 0.0


def test_ratio_gives_four_tenths_of_the_share_until_all_pass():
    assert counted_reward("ratio", passed=2, total=4).reward == pytest.approx(0.2)
    assert counted_reward("ratio", passed=4, total=4).reward == 1.0
    assert counted_reward("ratio", passed=0, total=0).reward == 0.0


def test_without_a_report_only_a_script_that_never_asked_for_one_counts():
    assert uncounted_reward("dense", declared=0.5) == (0.5, RewardSource.BINARY)
    assert uncounted_reward("binary", declared=0.5) == (0.0, RewardSource.BINARY)
    assert uncounted_reward("binary", declared=1.0) == (1.0, RewardSource.BINARY)
    assert uncounted_reward("dense", declared=None) == (0.0, RewardSource.NO_REPORT)


def test_our_own_failure_is_no_number():
    assert no_reward() == (None, RewardSource.NONE)


def test_bad_settings_name_the_way_out():
    with pytest.raises(ValueError, match="choose dense, binary, ratio or module:function"):
        counted_reward("cubic", passed=1, total=2)
    with pytest.raises(ValueError, match="positive number"):
        counted_reward("dense", passed=1, total=2, scale=0)
