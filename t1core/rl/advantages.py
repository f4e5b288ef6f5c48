"""Generalised advantage estimation over the trainable tokens of packed rows (Schulman et al. 2016; T1, 4.5).

Departs from the textbook in what counts as a transition: tokens that were not sampled (prompts, terminal
output) are skipped, so the successor of the last token of a turn is the first token of the next turn, and
lambda < 1 or gamma < 1 decays by sampled tokens only.

    G_j = r_j + gamma * ((1 - lambda) * V_{j+1} + lambda * G_{j+1}),   V = G = 0 after a row's last such token
    A_j = G_j - V_j

This is GAE in its lambda-return form. It is used because at gamma = lambda = 1 it gives G_j = r to the bit,
where summing temporal differences would give r plus rounding.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Advantages:
    """Both float32 [T], 0 where the mask is 0."""

    advantages: torch.Tensor
    returns: torch.Tensor


def gae(
    values: torch.Tensor,
    *,
    rewards: torch.Tensor,
    mask: torch.Tensor,
    rows: torch.Tensor,
    gamma: float,
    lambd: float,
) -> Advantages:
    """Advantages and returns of every trainable token.

    values float [T], whatever stands at masked positions is never read; rewards float [R], one terminal
    reward a row, paid on its last trainable token; mask bool or integer [T]; rows int64 [T], the row of each
    token, not decreasing. A row without trainable tokens contributes nothing.
    """
    kept = mask.bool().nonzero().squeeze(1)
    row = rows[kept]
    value = values[kept].double()
    count = len(kept)
    last = torch.ones(count, dtype=torch.bool, device=values.device)
    last[:-1] = row[1:] != row[:-1]
    following = torch.zeros_like(value)
    following[:-1] = value[1:]
    following = following.masked_fill(last, 0.0)
    terminal = rewards.double()[row] * last
    lambda_return = _discounted_suffix_sum(
        terminal + gamma * (1.0 - lambd) * following, row=row, discount=gamma * lambd
    ).float()
    returns = torch.zeros_like(values, dtype=torch.float32).index_copy(0, kept, lambda_return)
    advantages = torch.zeros_like(returns).index_copy(0, kept, lambda_return - values[kept].float())
    return Advantages(advantages=advantages, returns=returns)


def _discounted_suffix_sum(terms: torch.Tensor, *, row: torch.Tensor, discount: float) -> torch.Tensor:
    """sum_n discount^n * terms[j + n] within each row, by doubling: log2(T) vector operations, no loop over
    tokens."""
    total = terms
    span = 1
    while span < len(terms) and bool((row[span:] == row[:-span]).any()):
        same = row[span:] == row[:-span]
        total = total + torch.cat([(discount**span) * total[span:] * same, total.new_zeros(span)])
        span *= 2
    return total
