"""Intervals against table values and a case worked by hand."""

import math

import pytest

from t1core.analysis.interval import mean_interval, t_quantile, welch_interval


@pytest.mark.parametrize(
    ("freedom", "value"),
    [(1, 12.7062), (2, 4.3027), (5, 2.5706), (9.5, 2.24414), (30, 2.0423), (1e5, 1.95999)],
)
def test_t_quantiles_are_the_tables(freedom, value):
    assert t_quantile(freedom) == pytest.approx(value, abs=6e-5)


def test_the_mean_of_1_2_3_by_hand():
    # Standard error 1 / sqrt(3), t(2) = 4.3027: half width 2.4841.
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.estimate == 2.0
    assert interval.high - 2.0 == pytest.approx(2.4841, abs=1e-3)
    assert interval.low == pytest.approx(2.0 - 2.4841, abs=1e-3)


def test_welch_by_hand_with_unequal_variances():
    # Means 2 and 5; variances 1 and 4 over 3 and 4: 1/3 + 1. Freedom (4/3)^2 / (1/9/2 + 1/3) = 4.5714, t = 2.6453.
    interval = welch_interval([3.0, 7.0, 5.0 + math.sqrt(2), 5.0 - math.sqrt(2)], before=[1.0, 2.0, 3.0])
    assert interval.estimate == pytest.approx(3.0)
    assert interval.high - interval.low == pytest.approx(2 * 2.6453 * math.sqrt(4 / 3), abs=2e-3)


def test_too_little_data_is_undefined_and_never_excludes_zero():
    for interval in (mean_interval([]), mean_interval([1.0]), welch_interval([1.0], before=[0.0])):
        assert math.isnan(interval.low)
        assert not interval.excludes_zero
    assert mean_interval([1.0]).estimate == 1.0


def test_samples_without_variance_give_a_point():
    interval = welch_interval([2.0, 2.0], before=[1.0, 1.0])
    assert (interval.low, interval.high) == (1.0, 1.0)
    assert interval.excludes_zero
