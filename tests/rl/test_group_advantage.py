"""Group-relative advantages against numbers worked by hand."""

import pytest
import torch

from t1core.rl.group_advantage import group_advantages


def advantages(rewards, trials, groups, *, normalise_std=True, dtype=torch.float32):
    return group_advantages(
        torch.tensor(rewards, dtype=dtype),
        trials=torch.tensor(trials),
        groups=torch.tensor(groups),
        normalise_std=normalise_std,
    )


def test_two_groups_are_each_measured_against_their_own_mean_and_deviation():
    # (1, 2, 3): mean 2, sample deviation 1. (0, 4): mean 2, sample deviation sqrt(8) = 2.828427.
    found = advantages([1, 2, 3, 0, 4], [0, 1, 2, 3, 4], [0, 0, 0, 1, 1])
    half = 2 / 8**0.5
    assert found.tolist() == pytest.approx([-1, 0, 1, -half, half], abs=2e-6)


def test_without_the_deviation_the_advantage_is_the_distance_from_the_mean():
    found = advantages([1, 2, 3, 0, 4], [0, 1, 2, 3, 4], [0, 0, 0, 1, 1], normalise_std=False)
    assert found.tolist() == [-1, 0, 1, -2, 2]


def test_a_group_of_equal_rewards_teaches_exactly_nothing():
    # In double precision three tenths over three are not a tenth again.
    assert (0.1 + 0.1 + 0.1) / 3 != 0.1
    for dtype in (torch.float32, torch.float64):
        found = advantages([0.1, 0.1, 0.1, 0.0, 1.0], [0, 1, 2, 3, 4], [0, 0, 0, 1, 1], dtype=dtype)
        assert found[:3].tolist() == [0.0, 0.0, 0.0]
        assert found[3:].tolist() != [0.0, 0.0]


def test_the_chunks_of_a_split_trial_count_once_and_all_carry_its_advantage():
    whole = advantages([0, 3, 3], [0, 1, 2], [0, 0, 0])
    split = advantages([0, 3, 3, 3, 3], [0, 1, 1, 1, 2], [0, 0, 0, 0, 0])
    assert split.tolist() == [whole[i] for i in (0, 1, 1, 1, 2)]


def test_rows_of_a_group_need_not_lie_side_by_side():
    found = advantages([0, 5, 2, 5], [0, 1, 2, 3], [0, 1, 0, 1], normalise_std=False)
    assert found.tolist() == [-1, 0, 1, 0]


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="at least twice"):
        advantages([0, 1, 1], [0, 1, 2], [0, 0, 1])
