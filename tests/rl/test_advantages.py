"""Advantages against numbers worked by hand, and the identities the loop relies on."""

import math

import pytest
import torch

from t1core.rl import gae, length_adaptive_lambda, whiten

NAN = float("nan")


def _gae(values, rewards, mask, rows, gamma=1.0, lambd=1.0):
    return gae(
        torch.tensor(values),
        rewards=torch.tensor(rewards),
        mask=torch.tensor(mask),
        rows=torch.tensor(rows),
        gamma=gamma,
        lambd=lambd,
    )


def _by_definition(values, rewards, mask, rows, gamma, lambd):
    """The temporal-difference form, token by token."""
    advantages = [0.0] * len(values)
    for row in set(rows):
        kept = [t for t in range(len(values)) if rows[t] == row and mask[t]]
        running = 0.0
        for i in reversed(range(len(kept))):
            following = values[kept[i + 1]] if i + 1 < len(kept) else 0.0
            reward = rewards[row] if i + 1 == len(kept) else 0.0
            running = reward + gamma * following - values[kept[i]] + gamma * lambd * running
            advantages[kept[i]] = running
    return advantages


def test_one_row_of_three_tokens_gives_the_numbers_worked_by_hand():
    # V = 0.5, 0.4, 0.2; r = 1; gamma = 0.9, lambda = 0.8.
    # delta_3 = 1 - 0.2 = 0.8; delta_2 = 0.9 * 0.2 - 0.4 = -0.22; delta_1 = 0.9 * 0.4 - 0.5 = -0.14
    # A_3 = 0.8; A_2 = -0.22 + 0.72 * 0.8 = 0.356; A_1 = -0.14 + 0.72 * 0.356 = 0.11632
    got = _gae([0.5, 0.4, 0.2], [1.0], [1, 1, 1], [0, 0, 0], gamma=0.9, lambd=0.8)
    assert got.advantages.tolist() == pytest.approx([0.11632, 0.356, 0.8], abs=1e-6)
    assert got.returns.tolist() == pytest.approx([0.61632, 0.756, 1.0], abs=1e-6)


def test_observation_tokens_between_two_turns_are_no_transitions():
    dense = _gae([0.5, 0.4, 0.2], [1.0], [1, 1, 1], [0, 0, 0], gamma=0.9, lambd=0.8)
    gapped = _gae(
        [NAN, 0.5, NAN, math.inf, 0.4, -1000.0, 0.2, NAN],
        [1.0],
        [0, 1, 0, 0, 1, 0, 1, 0],
        [0] * 8,
        gamma=0.9,
        lambd=0.8,
    )
    assert torch.equal(gapped.advantages[[1, 4, 6]], dense.advantages)
    assert gapped.advantages[[0, 2, 3, 5, 7]].eq(0).all()
    assert gapped.returns[[0, 2, 3, 5, 7]].eq(0).all()


def test_at_gamma_and_lambda_one_every_return_is_the_reward_to_the_bit():
    generator = torch.Generator().manual_seed(1)
    rows = torch.repeat_interleave(torch.arange(5), torch.tensor([700, 1, 33, 2, 400]))
    values = torch.randn(len(rows), generator=generator) * 3
    rewards = torch.tensor([0.15, 2.75, 0.0, 0.1, 0.35])
    mask = torch.rand(len(rows), generator=generator) < 0.6
    got = gae(values, rewards=rewards, mask=mask, rows=rows, gamma=1.0, lambd=1.0)
    assert torch.equal(got.returns[mask], rewards[rows][mask])
    assert torch.equal(got.advantages[mask], (rewards[rows] - values)[mask])


@pytest.mark.parametrize(("gamma", "lambd"), [(1.0, 0.95), (0.99, 1.0), (0.97, 0.9), (1.0, 0.0)])
def test_the_vectorised_form_equals_the_definition_on_ragged_rows(gamma, lambd):
    generator = torch.Generator().manual_seed(2)
    rows = torch.repeat_interleave(torch.arange(6), torch.tensor([5, 1, 64, 3, 17, 2])).tolist()
    values = torch.randn(len(rows), generator=generator).tolist()
    mask = (torch.rand(len(rows), generator=generator) < 0.7).int().tolist()
    rewards = [1.0, 0.5, 0.2, 0.0, 2.0, -0.3]
    got = _gae(values, rewards, mask, rows, gamma=gamma, lambd=lambd)
    assert got.advantages.tolist() == pytest.approx(
        _by_definition(values, rewards, mask, rows, gamma, lambd), abs=1e-5
    )


def test_a_row_without_trainable_tokens_changes_nothing_for_its_neighbours():
    alone = _gae([0.1, 0.2, 0.3, 0.4], [1.0, 0.5], [1, 1, 1, 1], [0, 0, 1, 1], gamma=0.9, lambd=0.9)
    beside = _gae(
        [0.1, 0.2, 9.0, 9.0, 0.3, 0.4], [1.0, 7.0, 0.5], [1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2], 0.9, 0.9
    )
    assert torch.equal(beside.advantages[[0, 1, 4, 5]], alone.advantages)


def test_a_batch_without_any_trainable_token_is_all_zero():
    got = _gae([NAN, 1.0], [1.0], [0, 0], [0, 0])
    assert got.advantages.tolist() == [0.0, 0.0]
    assert got.returns.tolist() == [0.0, 0.0]


def test_a_lambda_a_row_gives_each_row_what_it_would_get_alone():
    values, mask, rows = [0.5, 0.4, 0.2, 0.3, 0.1], [1] * 5, [0, 0, 0, 1, 1]
    both = _gae(
        values, [1.0, 0.5], mask, rows, gamma=0.9, lambd=torch.tensor([0.8, 0.3], dtype=torch.float64)
    )
    first = _gae(values[:3], [1.0], mask[:3], rows[:3], gamma=0.9, lambd=0.8)
    second = _gae(values[3:], [0.5], mask[3:], [0, 0], gamma=0.9, lambd=0.3)
    assert torch.equal(both.advantages, torch.cat([first.advantages, second.advantages]))
    assert torch.equal(both.returns, torch.cat([first.returns, second.returns]))


def test_the_length_adaptive_lambda_worked_by_hand():
    # alpha 0.05: 1 - 1 / (0.05 * 100) = 0.8; 20 tokens: 0; 4 tokens would be negative: 0; none: 0.
    rows = torch.repeat_interleave(torch.arange(4), torch.tensor([100, 20, 5, 3]))
    mask = torch.ones(128)
    mask[[120, 125, 126, 127]] = 0
    got = length_adaptive_lambda(mask, rows=rows, num_rows=4, alpha=0.05)
    assert got.tolist() == pytest.approx([0.8, 0.0, 0.0, 0.0])


def test_whitened_advantages_have_mean_zero_and_deviation_one_over_loss_tokens_alone():
    # 1, 2, 3: mean 2, population deviation sqrt(2/3).
    got = whiten(torch.tensor([1.0, NAN, 2.0, 3.0]), mask=torch.tensor([1, 0, 1, 1]))
    edge = math.sqrt(1.5)
    assert got.tolist() == pytest.approx([-edge, 0.0, 0.0, edge], abs=1e-6)
    assert whiten(torch.full((3,), 0.7), mask=torch.ones(3)).tolist() == [0.0, 0.0, 0.0]
    assert whiten(torch.tensor([NAN]), mask=torch.zeros(1)).tolist() == [0.0]


@pytest.mark.parametrize("tail", [0, 1, 7])
def test_the_reward_falls_on_the_last_response_token_whether_or_not_a_masked_tail_follows(tail):
    values = [0.5, 0.4, 0.2] + [NAN] * tail
    got = _gae(values, [1.0], [1, 1, 1] + [0] * tail, [0] * (3 + tail), gamma=0.9, lambd=0.8)
    assert got.advantages[:3].tolist() == pytest.approx([0.11632, 0.356, 0.8], abs=1e-6)
