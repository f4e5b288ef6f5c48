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
    lambd: float | torch.Tensor,
) -> Advantages:
    """Advantages and returns of every trainable token.

    values float [T], whatever stands at masked positions is never read; rewards float [R], one terminal
    reward a row, paid on its last trainable token, whether or not masked tokens follow it; mask bool or integer
    [T]; rows int64 [T], the row of each token, not decreasing; lambd one number, or [R], one a row. A row
    without trainable tokens contributes nothing.
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
    decay = torch.as_tensor(lambd, dtype=torch.float64, device=values.device)
    decay = decay[row] if decay.ndim else decay
    lambda_return = _discounted_suffix_sum(
        terminal + gamma * (1.0 - decay) * following, row=row, discount=gamma * decay
    ).float()
    returns = torch.zeros_like(values, dtype=torch.float32).index_copy(0, kept, lambda_return)
    advantages = torch.zeros_like(returns).index_copy(0, kept, lambda_return - values[kept].float())
    return Advantages(advantages=advantages, returns=returns)


def length_adaptive_lambda(
    mask: torch.Tensor, *, rows: torch.Tensor, num_rows: int, alpha: float
) -> torch.Tensor:
    """lambda = 1 - 1 / (alpha * l), l the trainable tokens of a row, at least 0: float64 [R] (VAPO 2504.05118).

    Rows up to 1 / alpha tokens long get 0. mask [T], rows int64 [T].
    """
    counts = torch.zeros(num_rows, dtype=torch.float64, device=mask.device)
    counts.index_add_(0, rows, mask.double())
    return (1.0 - 1.0 / (alpha * counts.clamp(min=1.0))).clamp(min=0.0)


def whiten(advantages: torch.Tensor, *, mask: torch.Tensor) -> torch.Tensor:
    """Advantages less their mean, over their standard deviation, over the batch's trainable tokens; float32 [T], 0
    where the mask is 0. Advantages that do not vary become 0."""
    kept = mask.bool()
    chosen = advantages[kept].double()
    if not len(chosen):
        return torch.zeros_like(advantages, dtype=torch.float32)
    centred = chosen - chosen.mean()
    deviation = centred.square().mean().sqrt()
    white = centred / (deviation + 1e-8)
    whole = torch.zeros_like(advantages, dtype=torch.float32)
    whole[kept] = white.float()
    return whole


def _discounted_suffix_sum(terms: torch.Tensor, *, row: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
    """sum_n discount^n * terms[j + n] within each row, by doubling: log2(T) vector operations, no loop over
    tokens. discount: one number, or one a token that is the same within a row."""
    total = terms
    span = 1
    while span < len(terms) and bool((row[span:] == row[:-span]).any()):
        same = row[span:] == row[:-span]
        factor = (discount[:-span] if discount.ndim else discount) ** span
        total = total + torch.cat([factor * total[span:] * same, total.new_zeros(span)])
        span *= 2
    return total
