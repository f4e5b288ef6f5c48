"""A policy that chooses how long its trials are, and learns by policy gradient from shaped rewards.

Its only parameters are logits of numbers of turns. A trial of n turns passes about `tests_at(n)` tests of ten:
four at a healthy length, and one more for every 25 turns of retrying. Each update moves the
logit of a number of turns by the mean advantage of the trials that had it (natural policy gradient, the batch's mean
as baseline); a tenth of the trials draws any number. Rewards come from `verifier.shaping`, as a campaign's do.
"""

import numpy as np
import pandas as pd

from t1core.verifier.shaping import GradedTrial, LengthShaping, shaped_rewards

TURNS = np.arange(5, 105, 5)


def tests_at(turns: np.ndarray) -> np.ndarray:
    """Mean number of tests that a trial passes."""
    return 4 * np.minimum(turns / 25, 1) + np.maximum(turns - 25, 0) / 25


def mean_turns(
    shaping: LengthShaping, *, steps: int, batch: int, lr: float, seed: int, start: float = 22.0
) -> pd.DataFrame:
    """Mean turns and tests of each step's batch."""
    rng = np.random.default_rng(seed)
    logits = -((TURNS - start) ** 2) / (2 * 15.0**2)
    rows = []
    for step in range(steps):
        probs = np.exp(logits - logits.max())
        probs = 0.9 * probs / probs.sum() + 0.1 / len(TURNS)
        chosen = rng.choice(len(TURNS), size=batch, p=probs)
        passed = rng.poisson(tests_at(TURNS[chosen])).clip(max=10)
        trials = [
            GradedTrial(reward=count / shaping.scale, num_turns=int(turns), solved=count == 10, total=10)
            for count, turns in zip(passed, TURNS[chosen], strict=True)
        ]
        rewards = np.array(shaped_rewards(trials, shaping=shaping))
        advantages = rewards - rewards.mean()
        summed = np.bincount(chosen, weights=advantages, minlength=len(TURNS))
        logits = logits + lr * summed / np.maximum(np.bincount(chosen, minlength=len(TURNS)), 1)
        rows.append(dict(step=step, turns=float(TURNS[chosen].mean()), tests=float(passed.mean())))
    return pd.DataFrame(rows)
