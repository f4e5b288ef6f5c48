"""Shaping of rewards by the length of a trial, and scaling over a batch: plain numbers in, plain numbers out.

P tests passed of T, r = P / S, n turns, n0 the healthy number of turns. T1 names three variants, of which the first two
failed, and publishes no formula; these satisfy every property it states.

    bonus            among trials that passed all of the same number of tests, rank by turns, 0 the shortest of m >= 2:
                     r += (eta / S) (1 - rank / (m - 1)), eta < 1; equal turns share their mean rank
    additive         r -= (lambda / S) min(1, max(0, n - n0) / n0), lambda < 1
    multiplicative   d(n) = max(floor, 1 - kappa max(0, n - n0));  r d(n) if r > 0,
                     else -(c0 / S) min(1, max(0, n - n0) / n0)

With n0 = 25, kappa = 0.01 and lambda = 0.8, five tests at 50 turns are worth 0.1875 under the discount and 0.21 under
the penalty, beside 0.2 for four tests at a healthy length: only the discount makes farming a test with turns a loss.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Shaping = Literal["none", "bonus", "additive", "multiplicative"]


@dataclass(frozen=True)
class LengthShaping:
    """kind and its constants; `scale` is S. Amounts are in tests: bonus_tests is eta, penalty_tests is lambda,
    idle_penalty_tests is c0."""

    kind: Shaping = "none"
    scale: float = 20.0
    healthy_turns: int = 25
    bonus_tests: float = 0.5
    penalty_tests: float = 0.8
    discount_per_turn: float = 0.01
    discount_floor: float = 0.5
    idle_penalty_tests: float = 0.5

    def excess(self, num_turns: int) -> float:
        """Turns beyond the healthy number, as a share of it, at most 1."""
        return min(1.0, max(0, num_turns - self.healthy_turns) / self.healthy_turns)

    def discount(self, num_turns: int) -> float:
        """d(n) of the multiplicative variant."""
        beyond = max(0, num_turns - self.healthy_turns)
        return max(self.discount_floor, 1.0 - self.discount_per_turn * beyond)


@dataclass(frozen=True)
class GradedTrial:
    """What shaping reads of a trial. `reward` is its grade's, `total` its number of tests."""

    reward: float
    num_turns: int
    solved: bool
    total: int


def shaped_rewards(trials: Sequence[GradedTrial], *, shaping: LengthShaping) -> list[float]:
    """The rewards that are trained on, one a trial of the batch. ValueError for an unknown kind."""
    if shaping.kind == "none":
        return [trial.reward for trial in trials]
    if shaping.kind == "bonus":
        shares = _bonus_shares(trials)
        return [
            trial.reward + shaping.bonus_tests / shaping.scale * share
            for trial, share in zip(trials, shares, strict=True)
        ]
    if shaping.kind == "additive":
        step = shaping.penalty_tests / shaping.scale
        return [trial.reward - step * shaping.excess(trial.num_turns) for trial in trials]
    if shaping.kind == "multiplicative":
        step = shaping.idle_penalty_tests / shaping.scale
        return [
            trial.reward * shaping.discount(trial.num_turns)
            if trial.reward > 0
            else -step * shaping.excess(trial.num_turns)
            for trial in trials
        ]
    raise ValueError(f"shaping={shaping.kind!r}: choose none, bonus, additive or multiplicative")


def scaled_by_batch_maximum(rewards: Sequence[float]) -> list[float]:
    """Rewards over the largest absolute one of the batch; all zero stay zero.

    What a reward is worth then depends on what else was sampled: a switch for experiments, not for campaigns.
    """
    largest = max((abs(reward) for reward in rewards), default=0.0)
    return [reward / largest for reward in rewards] if largest else list(rewards)


def _bonus_shares(trials: Sequence[GradedTrial]) -> list[float]:
    """1 - rank / (m - 1) of each solved trial among the solved ones with as many tests; 0 for the others."""
    shares = [0.0] * len(trials)
    for total in {trial.total for trial in trials if trial.solved}:
        peers = [i for i, trial in enumerate(trials) if trial.solved and trial.total == total]
        if len(peers) < 2:
            continue
        counts = Counter(trials[i].num_turns for i in peers)
        for i in peers:
            turns = trials[i].num_turns
            shorter = sum(count for other, count in counts.items() if other < turns)
            rank = shorter + (counts[turns] - 1) / 2
            shares[i] = 1.0 - rank / (len(peers) - 1)
    return shares
