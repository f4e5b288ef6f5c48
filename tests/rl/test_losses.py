"""Policy and value losses and their denominators against numbers worked by hand."""

import math

import pytest
import torch

from t1core.rl import policy_loss, token_weights, value_loss

NAN, INF = float("nan"), float("inf")


def _policy(ratios, advantages, **kwargs):
    logprobs = torch.tensor([math.log(r) for r in ratios], requires_grad=True)
    loss = policy_loss(
        logprobs,
        behaviour_logprobs=torch.zeros(len(ratios)),
        advantages=torch.tensor(advantages),
        mask=torch.ones(len(ratios)),
        **{"eps_clip": 0.2, **kwargs},
    )
    loss.per_token.sum().backward()
    return loss, logprobs.grad


def test_the_four_corners_of_the_clip_give_the_numbers_worked_by_hand():
    # ratio 1.5, A=2: clipped to 1.2 -> -2.4, no gradient; ratio 1.5, A=-2: unclipped, 3.0, gradient 3
    # ratio 0.5, A=2: unclipped, -1.0, gradient -1;        ratio 0.5, A=-2: clipped to 0.8 -> 1.6, no gradient
    loss, gradient = _policy([1.5, 1.5, 0.5, 0.5], [2.0, -2.0, 2.0, -2.0])
    assert loss.per_token.tolist() == pytest.approx([-2.4, 3.0, -1.0, 1.6], abs=1e-6)
    assert gradient.tolist() == pytest.approx([0.0, 3.0, -1.0, 0.0], abs=1e-6)
    assert loss.is_clipped.tolist() == [True, False, False, True]
    assert loss.ratio.tolist() == pytest.approx([1.5, 1.5, 0.5, 0.5], abs=1e-6)


def test_at_ratio_one_the_gradient_is_minus_the_advantage():
    _, gradient = _policy([1.0, 1.0], [0.7, -0.3])
    assert gradient.tolist() == pytest.approx([-0.7, 0.3], abs=1e-6)


def test_a_higher_upper_side_clips_later_above_and_not_otherwise_below():
    loss, _ = _policy([1.25, 1.35, 0.75], [1.0, 1.0, -1.0], eps_clip_high=0.28)
    assert loss.per_token.tolist() == pytest.approx([-1.25, -1.28, 0.8], abs=1e-6)


def test_dual_clip_bounds_the_loss_only_at_negative_advantages():
    loss, gradient = _policy([10.0, 10.0, 2.0], [-1.0, 1.0, -1.0], dual_clip=3.0)
    assert loss.per_token.tolist() == pytest.approx([3.0, -1.2, 2.0], abs=1e-5)
    assert gradient.tolist() == pytest.approx([0.0, 0.0, 2.0], abs=1e-5)
    assert loss.is_clipped.tolist() == [True, True, False]


def test_a_dual_clip_of_one_or_less_is_refused():
    with pytest.raises(ValueError, match="dual_clip"):
        _policy([1.0], [1.0], dual_clip=1.0)


@pytest.mark.parametrize("poison", [NAN, INF, -INF, 1000.0, -1000.0])
@pytest.mark.parametrize("where", ["logprobs", "behaviour", "advantages"])
def test_whatever_stands_at_a_masked_position_reaches_neither_policy_loss_nor_gradient(poison, where):
    def run(value):
        streams = {
            "logprobs": torch.tensor([-1.0, -2.0, -0.5]),
            "behaviour": torch.tensor([-1.1, -2.0, -0.4]),
            "advantages": torch.tensor([0.5, 3.0, -0.5]),
        }
        streams[where][1] = value
        logprobs = streams["logprobs"].requires_grad_()
        loss = policy_loss(
            logprobs,
            behaviour_logprobs=streams["behaviour"],
            advantages=streams["advantages"],
            mask=torch.tensor([1, 0, 1]),
            eps_clip=0.2,
        )
        loss.per_token.sum().backward()
        return loss, logprobs.grad

    clean, clean_gradient = run(0.0)
    dirty, dirty_gradient = run(poison)
    assert torch.equal(dirty.per_token, clean.per_token)
    assert dirty.per_token[1] == 0
    assert torch.equal(dirty_gradient, clean_gradient)
    assert dirty_gradient[1] == 0
    assert torch.equal(dirty.ratio, clean.ratio)
    assert not dirty.is_clipped[1]


def test_value_loss_inside_and_outside_the_clip_gives_the_numbers_worked_by_hand():
    # V=0.5 V_old=0.4 R=1: inside, 0.25. V=0.9 V_old=0.4 R=1: V_clip=0.6, max(0.01, 0.16)=0.16, no gradient.
    # V=0.9 V_old=0.4 R=0: V_clip=0.6, max(0.81, 0.36)=0.81, gradient 1.8.
    values = torch.tensor([0.5, 0.9, 0.9], requires_grad=True)
    loss = value_loss(
        values,
        old_values=torch.tensor([0.4, 0.4, 0.4]),
        returns=torch.tensor([1.0, 1.0, 0.0]),
        mask=torch.ones(3),
        value_clip=0.2,
    )
    loss.per_token.sum().backward()
    assert loss.per_token.tolist() == pytest.approx([0.25, 0.16, 0.81], abs=1e-6)
    assert loss.is_clipped.tolist() == [False, True, False]
    assert values.grad.tolist() == pytest.approx([-1.0, 0.0, 1.8], abs=1e-6)


@pytest.mark.parametrize("poison", [NAN, INF, -INF, 1000.0, -1000.0])
def test_whatever_stands_at_a_masked_position_reaches_neither_value_loss_nor_gradient(poison):
    values = torch.tensor([0.5, poison, 0.9], requires_grad=True)
    other = torch.tensor([0.4, poison, 0.4])
    loss = value_loss(values, old_values=other, returns=other, mask=torch.tensor([1, 0, 1]), value_clip=0.2)
    loss.per_token.sum().backward()
    assert loss.per_token.tolist() == pytest.approx([0.01, 0.0, 0.25], abs=1e-6)
    assert values.grad.tolist() == pytest.approx([0.2, 0.0, 1.0], abs=1e-6)


def test_row_mean_weighs_each_row_alike_and_counts_rows_without_tokens_in_the_denominator():
    # Three rows with 2, 0 and 1 trainable tokens: 1 / (2 * 3), nothing, 1 / (1 * 3).
    weights = token_weights(
        torch.tensor([1, 1, 0, 0, 1, 0]),
        rows=torch.tensor([0, 0, 0, 1, 2, 2]),
        trials=torch.arange(3),
        aggregation="row_mean",
    )
    assert weights.tolist() == pytest.approx([1 / 6, 1 / 6, 0, 0, 1 / 3, 0])


def test_token_mean_weighs_each_token_alike():
    weights = token_weights(
        torch.tensor([1, 1, 0, 0, 1, 0]),
        rows=torch.tensor([0, 0, 0, 1, 2, 2]),
        trials=torch.arange(3),
        aggregation="token_mean",
    )
    assert weights.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0, 1 / 3, 0])


def test_trial_mean_takes_the_chunks_of_a_trial_together():
    # Rows 0 and 1 are chunks of one trial with 2 + 1 loss tokens, row 2 a trial of one: 1 / (3 * 2), 1 / (1 * 2).
    shared = dict(rows=torch.tensor([0, 0, 0, 1, 2, 2]), trials=torch.tensor([0, 0, 1]))
    mask = torch.tensor([1, 1, 0, 1, 1, 0])
    by_trial = token_weights(mask, aggregation="trial_mean", **shared)
    assert by_trial.tolist() == pytest.approx([1 / 6, 1 / 6, 0, 1 / 6, 1 / 2, 0])
    # With row_mean the split trial weighs twice as much as the whole one.
    by_row = token_weights(mask, aggregation="row_mean", **shared)
    assert by_row[:4].sum().item() == pytest.approx(2 / 3) and by_row[4].item() == pytest.approx(1 / 3)


def test_an_all_masked_batch_weighs_nothing_rather_than_dividing_by_zero():
    for aggregation in ("row_mean", "token_mean"):
        weights = token_weights(
            torch.zeros(3), rows=torch.tensor([0, 0, 1]), trials=torch.arange(2), aggregation=aggregation
        )
        assert weights.tolist() == [0.0, 0.0, 0.0]


def test_an_unknown_aggregation_is_refused_by_name():
    with pytest.raises(ValueError, match="loss_aggregation='mean'"):
        token_weights(
            torch.ones(1), rows=torch.zeros(1, dtype=torch.long), trials=torch.arange(1), aggregation="mean"
        )
