"""Rewards from a grade's counts: plain numbers in, plain numbers out.

    dense   r = P / S                                       P tests passed, S the scale (20); may exceed 1
    binary  r = b                                           b = 1 when every test passed
    ratio   r = clip(max(b, 0.4 P / T), 0, max(1, b))       T tests in the task
    module:function                                         function(passed=P, total=T, scale=S), a rule of one's own

`subtract_nop` takes out the tests that an untouched workspace passes, from P and from T.
"""

import importlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from t1core.records import RewardSource

# dense, binary, ratio, or module:function
RewardKind = str
DEFAULT_SCALE = 20
RATIO_WEIGHT = 0.4


class Reward(NamedTuple):
    """A reward and where it came from; `reward` is None exactly when `source` is NONE."""

    reward: float | None
    source: RewardSource


def counted_reward(kind: RewardKind, *, passed: int, total: int, scale: float = DEFAULT_SCALE) -> Reward:
    """Reward of `passed` out of `total` tests. Raises ValueError for an unknown kind or a scale that is
    not positive."""
    assert 0 <= passed <= total, (passed, total)
    if scale <= 0:
        raise ValueError(
            f"scale = {scale}: the dense reward divides by it; give a positive number such as 20"
        )
    solved = float(total > 0 and passed == total)
    if kind == "dense":
        reward = passed / scale
    elif kind == "binary":
        reward = solved
    elif kind == "ratio":
        reward = max(solved, RATIO_WEIGHT * passed / total) if total else 0.0
        reward = min(max(reward, 0.0), max(1.0, solved))
    elif ":" in kind:
        reward = float(own_rule(kind)(passed=passed, total=total, scale=scale))
        if not math.isfinite(reward):
            raise ValueError(
                f"kind = {kind!r} gave {reward} for {passed} of {total} tests: a reward is a finite number"
            )
    else:
        raise ValueError(f"kind = {kind!r}: unknown reward; choose dense, binary, ratio or module:function")
    return Reward(reward, RewardSource.CTRF)


@lru_cache(maxsize=8)
def own_rule(name: str) -> Callable[..., float]:
    """The function that `module:function` names. ValueError where there is none."""
    module, _, function = name.partition(":")
    try:
        rule = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"kind = {name!r}: {error}; put the module's folder on PYTHONPATH, where every process finds it"
        ) from None
    if not callable(rule):
        raise ValueError(f"kind = {name!r}: it is no function")
    return rule


def uncounted_reward(kind: RewardKind, *, declared: float | None) -> Reward:
    """Reward when there is no usable report.

    `declared` is what the task's own script wrote, from 0 to 1 (`binary` takes 1 alone), and may only be given when the
    script never asked for a report. None means the report was asked for and is missing or unusable: code of the agent
    ran beside the reporter, so nothing else it left behind may count, and the reward is 0.
    """
    if declared is None:
        return Reward(0.0, RewardSource.NO_REPORT)
    return Reward(float(declared == 1) if kind == "binary" else declared, RewardSource.BINARY)


def no_reward() -> Reward:
    """The grader itself failed: no number at all, never 0."""
    return Reward(None, RewardSource.NONE)
