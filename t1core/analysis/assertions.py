"""Which assertions are gained and which are lost while the mean reward stands still.

A count of passed tests can stay where it is while other tests pass than before. Assertions of generated tasks have
names of their own, so they are taken together by kind: the family of the task and the name without words, suffixes
and numbers.
"""

from collections.abc import Sequence

import pandas as pd

from t1core.analysis.interval import Interval, welch_interval
from t1core.analysis.learning import accepted
from t1core.tasks.words import EXTENSIONS, WORDS

_NOISE = frozenset((*WORDS, *EXTENSIONS, "sh", "cfg", "test"))


def assertion_kind(family: str, name: str) -> str:
    """`write: content` of `test_outputs.py::test_bread_log_content` in the family `write`."""
    words = [
        word for word in name.rpartition("::")[2].split("_") if word not in _NOISE and not word.isdigit()
    ]
    return f"{family}: {' '.join(words) or 'whole'}"


def flat_windows(trials: pd.DataFrame, *, size: int) -> tuple[list[int], list[int]]:
    """The last `size` steps, and the earlier window whose mean reward is nearest theirs and that ends at least `size`
    steps before them. Chosen by the reward alone. ValueError for a run that is too short, and where even the nearest
    differs (its 95% interval does not hold zero)."""
    kept = accepted(trials)
    steps = sorted(int(step) for step in kept["step"].unique())
    if len(steps) < 3 * size:
        raise ValueError(
            f"the run has {len(steps)} steps; two windows of {size} with as many between need {3 * size}"
        )
    late = steps[-size:]
    windows = [steps[start : start + size] for start in range(len(steps) - 3 * size + 1)]
    gains = [window_gain(trials, early=early, late=late) for early in windows]
    nearest = min(range(len(windows)), key=lambda place: (abs(gains[place].estimate), place))
    if gains[nearest].excludes_zero:
        raise ValueError(
            f"no earlier {size} steps earn what the last {size} do: the nearest differ by {gains[nearest]}"
        )
    return windows[nearest], late


def window_gain(trials: pd.DataFrame, *, early: Sequence[int], late: Sequence[int]) -> Interval:
    """Mean reward of accepted trials of the late steps less that of the early ones."""
    kept = accepted(trials)
    before, after = (kept.loc[kept["step"].isin(steps), "reward"] for steps in (early, late))
    return welch_interval(after, before=before)


def assertion_changes(
    tests: pd.DataFrame, *, early: list[int], late: list[int], least: int = 20
) -> pd.DataFrame:
    """A row a kind of assertion with at least `least` results in each window: pass share early and late, gain with its
    95% interval, and change: gained, lost, or unclear where the interval holds zero. Largest gain first.

    `tests` is Run.all_tests. Results of one trial are not independent, so the intervals are over trials' shares.
    """
    kept = tests[tests["outcome"] == "accepted"].copy()
    pairs = zip(kept["family"], kept["name"], strict=True)
    kept["kind"] = [assertion_kind(family, name) for family, name in pairs]
    kept["passed"] = (kept["status"] == "passed").astype(float)
    rows = []
    for kind, part in kept.groupby("kind"):
        sides = [part[part["step"].isin(window)] for window in (early, late)]
        if min(len(side) for side in sides) < least:
            continue
        before, after = (side.groupby("trial_id")["passed"].mean() for side in sides)
        gain = welch_interval(after, before=before)
        change = "gained" if gain.low > 0 else "lost" if gain.high < 0 else "unclear"
        rows.append(
            (
                kind,
                len(before),
                len(after),
                before.mean(),
                after.mean(),
                gain.estimate,
                gain.low,
                gain.high,
                change,
            )
        )
    columns = ["kind", "trials_early", "trials_late", "early", "late", "gain", "low", "high", "change"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.sort_values("gain", ascending=False, kind="stable", ignore_index=True)
