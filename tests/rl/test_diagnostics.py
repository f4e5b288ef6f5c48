"""Explained variance and the log-prob gap against numbers worked by hand."""

import math

import pytest
import torch

from t1core.rl import (
    conditional_mean_predictor,
    explained_variance,
    logprob_gap,
    r_squared,
    value_bias,
    value_moments,
)

RETURNS = torch.tensor([0.0, 1.0, 2.0, 3.0])  # mean 1.5, variance 1.25
ONES = torch.ones(4)


def _moments(values, returns=RETURNS, mask=ONES):
    return value_moments(
        torch.as_tensor(values), returns=torch.as_tensor(returns), mask=torch.as_tensor(mask)
    )


def test_perfect_values_explain_everything():
    moments = _moments(RETURNS)
    assert explained_variance(moments) == pytest.approx(1.0)
    assert r_squared(moments) == pytest.approx(1.0)
    assert value_bias(moments) == pytest.approx(0.0)


def test_a_constant_offset_leaves_explained_variance_alone_and_lowers_r_squared():
    moments = _moments(RETURNS + 1.0)
    assert explained_variance(moments) == pytest.approx(1.0)
    assert r_squared(moments) == pytest.approx(1 - 1 / 1.25)
    assert value_bias(moments) == pytest.approx(1.0)


def test_values_worked_by_hand_give_the_number_worked_by_hand():
    # residuals 0, 0, 1, 1: mean 0.5, variance 0.25; EV = 1 - 0.25/1.25 = 0.8; R^2 = 1 - 0.5/1.25 = 0.6
    moments = _moments([0.0, 1.0, 1.0, 2.0])
    assert explained_variance(moments) == pytest.approx(0.8)
    assert r_squared(moments) == pytest.approx(0.6)
    assert value_bias(moments) == pytest.approx(-0.5)


def test_values_that_point_the_wrong_way_explain_less_than_nothing():
    # residuals -3, -1, 1, 3: variance 5 -> 1 - 4 = -3
    assert explained_variance(_moments([3.0, 2.0, 1.0, 0.0])) == pytest.approx(-3.0)


def test_moments_of_parts_add_up_to_the_whole_where_averaged_explained_variances_do_not():
    values = torch.tensor([0.0, 1.0, 1.0, 2.0])
    left, right = _moments(values[:2], RETURNS[:2], ONES[:2]), _moments(values[2:], RETURNS[2:], ONES[2:])
    assert explained_variance(left + right) == pytest.approx(0.8)
    assert (explained_variance(left) + explained_variance(right)) / 2 == pytest.approx(1.0)


@pytest.mark.parametrize("constant", [0.0, 0.35, 1e6])
def test_explained_variance_is_undefined_where_returns_do_not_vary(constant):
    moments = _moments([0.1, 0.2, 0.3, 0.4], torch.full((4,), constant))
    assert math.isnan(explained_variance(moments))
    assert math.isnan(r_squared(moments))


def test_nothing_trainable_is_undefined_not_zero():
    moments = _moments([1.0, 2.0, 3.0, 4.0], mask=torch.zeros(4))
    assert math.isnan(explained_variance(moments))
    assert math.isnan(value_bias(moments))


def test_masked_poison_does_not_reach_the_moments():
    moments = _moments(
        [0.0, 1.0, 1.0, 2.0, float("nan")], [0.0, 1.0, 2.0, 3.0, float("inf")], [1, 1, 1, 1, 0]
    )
    assert explained_variance(moments) == pytest.approx(0.8)


def test_the_group_mean_predictor_in_sample_and_with_the_row_left_out():
    targets, groups = torch.tensor([1.0, 3.0, 5.0, 7.0]), torch.tensor([4, 4, 9, 11])
    weights = torch.tensor([1.0, 3.0, 1.0, 1.0])
    inside = conditional_mean_predictor(targets, groups=groups, weights=weights, leave_one_out=False)
    assert inside.tolist() == pytest.approx([2.5, 2.5, 5.0, 7.0])
    # Rows alone in their group get the weighted mean of all others: (1 + 9 + 7) / 5 and (1 + 9 + 5) / 5.
    outside = conditional_mean_predictor(targets, groups=groups, weights=weights, leave_one_out=True)
    assert outside.tolist() == pytest.approx([3.0, 1.0, 17 / 5, 3.0])


def test_a_lone_row_cannot_be_predicted_from_others():
    lone = conditional_mean_predictor(
        torch.tensor([1.0]), groups=torch.tensor([3]), weights=torch.tensor([2.0]), leave_one_out=True
    )
    assert math.isnan(lone[0])


def test_the_log_prob_gap_gives_the_numbers_worked_by_hand():
    # d = +0.1, -0.3; signed mean -0.1; absolute 0.2; k3 = mean(e^d - 1 - d); probabilities e^-1, e^-2
    gap = logprob_gap(
        torch.tensor([-0.9, 5.0, -2.3]),
        rollout_logprobs=torch.tensor([-1.0, 0.0, -2.0]),
        mask=torch.tensor([1, 0, 1]),
    )
    assert gap.mean == pytest.approx(-0.1, abs=1e-6)
    assert gap.abs_mean == pytest.approx(0.2, abs=1e-6)
    assert gap.abs_max == pytest.approx(0.3, abs=1e-6)
    assert gap.k3 == pytest.approx(((math.exp(0.1) - 1.1) + (math.exp(-0.3) - 0.7)) / 2, abs=1e-6)
    expected = (abs(math.exp(-0.9) - math.exp(-1)) + abs(math.exp(-2.3) - math.exp(-2))) / 2
    assert gap.prob_abs_mean == pytest.approx(expected, abs=1e-6)
    assert gap.nonfinite == 0


def test_non_finite_tokens_are_counted_and_left_out_of_the_means():
    gap = logprob_gap(
        torch.tensor([-1.0, float("-inf"), -2.0]),
        rollout_logprobs=torch.tensor([-1.5, -1.0, float("nan")]),
        mask=ONES[:3],
    )
    assert gap.nonfinite == 2
    assert gap.mean == pytest.approx(0.5)


def test_the_mean_is_over_tokens_not_over_rows():
    # Row one has 4 tokens with gap 0.1, row two has one with gap 1: 1.4 / 5, not (0.1 + 1) / 2.
    trainer = torch.tensor([-0.9, -0.9, -0.9, -0.9, 0.0])
    gap = logprob_gap(trainer, rollout_logprobs=torch.full((5,), -1.0), mask=torch.ones(5))
    assert gap.abs_mean == pytest.approx(0.28, abs=1e-6)


def test_a_batch_without_trainable_tokens_has_no_gap_rather_than_zero():
    assert math.isnan(
        logprob_gap(torch.ones(2), rollout_logprobs=torch.ones(2), mask=torch.zeros(2)).abs_mean
    )
