"""What the reward functions pay: by tests passed, and by turns under each way of shaping by length."""

from collections.abc import Sequence

import pandas as pd

from t1core.verifier.reward import counted_reward
from t1core.verifier.shaping import GradedTrial, LengthShaping, shaped_rewards

KINDS = ("dense", "ratio", "binary")
SHAPINGS = ("none", "additive", "multiplicative")


def reward_by_passed(totals: Sequence[int]) -> pd.DataFrame:
    """A row a number of tests in a task, tests passed and kind of reward."""
    rows = [
        (total, passed, kind, counted_reward(kind, passed=passed, total=total).reward)
        for total in totals
        for passed in range(total + 1)
        for kind in KINDS
    ]
    return pd.DataFrame(rows, columns=["total", "passed", "kind", "reward"])


def reward_by_turns(passed: Sequence[int], *, turns: Sequence[int], shaping: LengthShaping) -> pd.DataFrame:
    """A row a shaping, tests passed and turns: the reward of one such trial, not solved, with the constants of
    `shaping`."""
    rows = []
    for kind in SHAPINGS:
        rule = LengthShaping(**{**vars(shaping), "kind": kind})
        for count in passed:
            for length in turns:
                trial = GradedTrial(count / rule.scale, num_turns=length, solved=False, total=count + 1)
                (reward,) = shaped_rewards([trial], shaping=rule)
                rows.append((kind, count, length, reward))
    return pd.DataFrame(rows, columns=["shaping", "passed", "turns", "reward"])


def farming_pays(curve: pd.DataFrame, *, farmed: int, farmed_turns: int, healthy_turns: int) -> pd.DataFrame:
    """A row a shaping: reward of `farmed` tests after `farmed_turns`, of one test fewer after `healthy_turns`, and
    whether the first is larger. `curve` is `reward_by_turns`."""
    table = curve.set_index(["shaping", "passed", "turns"])["reward"]
    rows = []
    for kind in SHAPINGS:
        long, short = table[kind, farmed, farmed_turns], table[kind, farmed - 1, healthy_turns]
        rows.append((kind, long, short, bool(long > short)))
    return pd.DataFrame(rows, columns=["shaping", "farmed", "healthy", "farming_pays"])
