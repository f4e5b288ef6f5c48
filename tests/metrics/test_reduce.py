"""Reduction across ranks by hand: sums are reduced first and divided once."""

import math

import pytest

from t1core.metrics import Reducer, reduce_parts


def test_a_mean_weighs_ranks_by_their_tokens_and_not_by_rank():
    # 10 tokens that sum to 2.0 and 90 that sum to 1.8: 3.8 / 100, where the mean of means would say 0.11.
    assert reduce_parts(Reducer.MEAN, [(2.0, 10), (1.8, 90)]) == pytest.approx(0.038)


def test_a_rank_without_data_changes_nothing_and_no_data_at_all_is_undefined():
    assert reduce_parts(Reducer.MEAN, [(0.0, 0), (1.5, 3)]) == 0.5
    assert math.isnan(reduce_parts(Reducer.MEAN, [(0.0, 0), (0.0, 0)]))


def test_a_nan_on_one_rank_is_not_hidden_by_the_maximum():
    assert reduce_parts(Reducer.MAX, [(1.0, 1), (4.0, 1)]) == 4.0
    assert math.isnan(reduce_parts(Reducer.MAX, [(4.0, 1), (math.nan, 1)]))


def test_sums_add_and_shared_values_must_agree():
    assert reduce_parts(Reducer.SUM, [(3, 0), (4, 0)]) == 7
    assert reduce_parts(Reducer.SAME, [(0.1, 1), (0.1, 1)]) == 0.1
    assert math.isnan(reduce_parts(Reducer.SAME, [(math.nan, 1), (math.nan, 1)]))
    with pytest.raises(AssertionError, match="disagree"):
        reduce_parts(Reducer.SAME, [(0.1, 1), (0.2, 1)])
