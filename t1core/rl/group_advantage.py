"""Group-relative advantages: the baseline without a critic (GRPO; Shao et al. 2024, section 4.1.2).

Several trials of one task make a group. A trial's advantage is its reward less the group's mean, over the group's
standard deviation, and every trainable token of the trial carries it. A group whose rewards are all equal teaches
nothing: its advantages are exactly 0.
"""

import torch

EPS = 1e-6


def group_advantages(
    rewards: torch.Tensor, *, trials: torch.Tensor, groups: torch.Tensor, normalise_std: bool
) -> torch.Tensor:
    """Advantage of each row of a batch, float32 [R].

    rewards float [R]; trials int64 [R], the trial of each row (the chunks of a split trial carry its reward each, and
    count once in the group's moments); groups int64 [R], the group of each row. Both count from 0 without gaps. The
    deviation is the sample's (n - 1), with 1e-6 added, as in slime; without `normalise_std` it is left out
    (Liu et al. 2025, "Dr. GRPO"). ValueError for a group of one trial, whose advantage would be 0 whatever it did.
    """
    num_trials = int(trials.max()) + 1
    num_groups = int(groups.max()) + 1
    reward = rewards.new_zeros(num_trials, dtype=torch.float64).index_copy(0, trials, rewards.double())
    group = groups.new_zeros(num_trials).index_copy(0, trials, groups)
    size = torch.bincount(group, minlength=num_groups)
    if int(size.min()) < 2:
        raise ValueError(
            f"a group of {int(size.min())} trial has no mean to compare with: sample every task at least twice"
        )
    total = reward.new_zeros(num_groups).index_add(0, group, reward)
    centred = reward - (total / size)[group]
    low = torch.full_like(total, torch.inf).index_reduce(0, group, reward, "amin")
    high = torch.full_like(total, -torch.inf).index_reduce(0, group, reward, "amax")
    # Where all rewards are equal the mean may differ from them by a rounding, which the deviation would blow up.
    centred = centred.masked_fill((low == high)[group], 0.0)
    if normalise_std:
        squares = torch.zeros_like(total).index_add(0, group, centred.square())
        centred = centred / ((squares / (size - 1)).sqrt() + EPS)[group]
    return centred[trials].float()
