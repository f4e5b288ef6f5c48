"""Policy gradient with critics of any quality, and what of them reaches the policy.

Tasks are of several kinds; in each the policy chooses one of four ways to work, known by their mean number of tests
passed. Returns are Monte-Carlo (gamma = lambda = 1), so the advantage is the reward less the critic's value of the
kind: whatever the critic says, its expectation over the policy's own choices is subtracted alike from every way.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from t1core.rl import explained_variance, policy_loss, value_moments

MEAN_TESTS = torch.tensor([[2.0, 2.2, 2.1, 2.0], [8.0, 8.1, 8.3, 8.0], [5.0, 5.2, 5.0, 5.1]])
"""Tests passed on average, [kinds, ways]: what the policy can still gain is small beside how tasks differ."""
_NOISE, _SCALE = 1.5, 20.0


@dataclass(frozen=True)
class Critic:
    """Values a kind's true mean times `knows`, plus noise a trial of deviation `noise` (in rewards)."""

    knows: float
    noise: float


def train(critic: Critic, *, steps: int, batch: int, lr: float, seed: int) -> pd.DataFrame:
    """Explained variance and mean reward of each step, rewards as T1's: tests over 20."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(MEAN_TESTS.shape, requires_grad=True)
    rows = []
    for step in range(steps):
        kinds, ways, rewards = _sample(logits, batch=batch, generator=generator)
        values = _values(critic, logits=logits, kinds=kinds, generator=generator)
        mask = torch.ones(batch, dtype=torch.bool)
        logprobs = torch.log_softmax(logits, -1)[kinds, ways]
        loss = policy_loss(
            logprobs,
            behaviour_logprobs=logprobs.detach(),
            advantages=rewards - values,
            mask=mask,
            eps_clip=0.2,
        ).per_token.mean()
        (gradient,) = torch.autograd.grad(loss, logits)
        with torch.no_grad():
            logits -= lr * gradient
        moments = value_moments(values, returns=rewards, mask=mask)
        rows.append(dict(step=step, ev=explained_variance(moments), reward=float(rewards.mean())))
    return pd.DataFrame(rows)


def mean_gradient(critic: Critic, *, batches: int, batch: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(mean, deviation of one batch) of the policy gradient at the start over many batches, [kinds, ways] flat."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(MEAN_TESTS.shape, requires_grad=True)
    found = []
    for _ in range(batches):
        kinds, ways, rewards = _sample(logits, batch=batch, generator=generator)
        values = _values(critic, logits=logits, kinds=kinds, generator=generator)
        surrogate = (torch.log_softmax(logits, -1)[kinds, ways] * (rewards - values)).mean()
        found.append(torch.autograd.grad(surrogate, logits)[0].flatten().numpy())
    stacked = np.stack(found)
    return stacked.mean(0), stacked.std(0, ddof=1)


def _sample(
    logits: torch.Tensor, *, batch: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kinds = torch.randint(0, len(MEAN_TESTS), (batch,), generator=generator)
    chances = torch.softmax(logits.detach(), -1)[kinds]
    ways = torch.multinomial(chances, 1, generator=generator).squeeze(1)
    tests = MEAN_TESTS[kinds, ways] + _NOISE * torch.randn(batch, generator=generator)
    return kinds, ways, tests / _SCALE


def _values(
    critic: Critic, *, logits: torch.Tensor, kinds: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    means = (torch.softmax(logits.detach(), -1) * MEAN_TESTS).sum(-1) / _SCALE
    noise = critic.noise * torch.randn(len(kinds), generator=generator)
    return critic.knows * means[kinds] + noise
