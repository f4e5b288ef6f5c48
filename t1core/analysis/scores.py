"""Scores: made from graded attempts, shown in a table, and refused a comparison that would not be one."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from t1core.records import Score, Trajectory

_MUST_AGREE = ("protocol", "headline", "split", "attempts", "num_tasks", "harness", "limits", "pool")


def make_score(
    trajectories: Sequence[Trajectory],
    *,
    asked: Sequence[str],
    attempts: int,
    step: int,
    split: str,
    protocol: str,
    headline: str,
    harness: Mapping[str, Any],
    limits: Mapping[str, Any],
    pool: Mapping[str, Any],
    weights: Mapping[str, Any],
) -> Score:
    """The score of the attempts that were graded. `asked`: the task of every attempt asked for, `attempts` times each.

    An attempt counts once, by its trial's stem: a retry stands in for what it repeats. AssertionError for tokens of
    more than one weight version, since a score is of one.
    """
    versions = {int(v) for t in trajectories for call in t.calls for v in np.unique(call.output_versions)}
    assert len(versions) <= 1, f"the tokens of one evaluation carry weight versions {sorted(versions)}"
    graded = {_attempt(t): t for t in trajectories if t.grade is not None and t.grade.reward is not None}
    by_task: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in graded.values():
        by_task[trajectory.task_id].append(trajectory)
    solved = [np.mean([t.grade.solved for t in tries if t.grade]) for tries in by_task.values()]
    dense = [np.mean([t.reward for t in tries]) for tries in by_task.values()]
    broken = {_attempt(t): t for t in trajectories if _attempt(t) not in graded}
    return Score(
        protocol=protocol,
        headline=headline,
        split=split,
        step=step,
        num_tasks=len(set(asked)),
        attempts=attempts,
        num_asked=len(asked),
        num_ran=len(graded),
        resolved=_mean(solved),
        dense=_mean(dense),
        resolved_se=_standard_error(solved),
        dense_se=_standard_error(dense),
        harness=harness,
        limits=limits,
        pool=pool,
        weights=dict(weights) | ({"version": versions.pop()} if versions else {}),
        unfinished=tuple(
            f"{t.task_id}: {t.failure.boundary} {t.failure.kind}: {t.failure.message[:120]}"
            if t.failure
            else f"{t.task_id}: {t.stop_reason}"
            for _, t in sorted(broken.items())
        ),
    )


def differences(a: Score, b: Score) -> list[str]:
    """What two scores were measured differently in, so that their difference is not the weights' alone; empty when they
    can be compared."""
    found = []
    for name in _MUST_AGREE:
        mine, theirs = getattr(a, name), getattr(b, name)
        if isinstance(mine, Mapping):
            keys = sorted(set(mine) | set(theirs))
            found += [
                f"{name}.{key}: {mine.get(key)!r} and {theirs.get(key)!r}"
                for key in keys
                if mine.get(key) != theirs.get(key)
            ]
        elif mine != theirs:
            found.append(f"{name}: {mine!r} and {theirs!r}")
    found += [f"incomplete: {s.num_ran} of {s.num_asked} attempts" for s in (a, b) if not s.is_complete]
    return found


def score_table(scores: Mapping[str, Sequence[Score]]) -> pd.DataFrame:
    """A row a score: of whom, protocol, split, step, resolved and dense with standard errors, how many attempts ran,
    and how it differs from the first score of its split (empty: nothing but the weights)."""
    rows, first = [], {}
    for name, several in scores.items():
        for score in several:
            reference = first.setdefault(score.split, score)
            rows.append(
                {
                    "of": name,
                    "protocol": score.protocol,
                    "split": score.split,
                    "step": score.step,
                    "resolved": score.resolved,
                    "resolved_se": score.resolved_se,
                    "dense": score.dense,
                    "dense_se": score.dense_se,
                    "ran": f"{score.num_ran} of {score.num_asked}",
                    "version": score.weights.get("version"),
                    "not_comparable": "; ".join(differences(reference, score)),
                }
            )
    return pd.DataFrame(rows)


def score_line(score: Score) -> str:
    """One line for people."""
    line = (
        f"{score.split}: resolved {score.resolved:.1%} (se {score.resolved_se:.1%}), "
        f"dense reward {score.dense:.3f} (se {score.dense_se:.3f}), {score.num_ran} of {score.num_asked} attempts "
        f"at {score.num_tasks} tasks"
    )
    if score.is_complete:
        return line
    told = "; ".join(score.unfinished[:3]) + ("; ..." if len(score.unfinished) > 3 else "")
    return f"INCOMPLETE  {line}  ({told})"


def _attempt(trajectory: Trajectory) -> str:
    return trajectory.trial_id.partition("~")[0]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
