"""How agents behaved in a step: what tells why their turns grow."""

from collections.abc import Sequence

import numpy as np

from t1core.records import StopReason, Trajectory, Turn
from t1core.rollout.trial import TrialResult


def measure_conduct(accepted: Sequence[TrialResult]) -> dict[str, float]:
    """agent/* of one step, over its accepted trials. A share without anything to share is left out."""
    trajectories = [item.trajectory for item in accepted]
    turns = [turn for trajectory in trajectories for turn in trajectory.turns if not turn.is_summary]
    summaries = [turn for trajectory in trajectories for turn in trajectory.turns if turn.is_summary]
    typed = [bool(turn.commands) for turn in turns]
    repeated = [flag for trajectory in trajectories for flag in repeated_commands(trajectory.turns)]
    lost = [any(turn.is_summary_lost for turn in trajectory.turns) for trajectory in trajectories]
    passed = [trajectory.grade.passed for trajectory in trajectories if trajectory.grade is not None]
    metrics = {
        "agent/summaries": len(summaries),
        "agent/lost_summary_frac": _mean(lost),
        "agent/summary_success_frac": _mean([not turn.is_summary_lost for turn in summaries]),
        "agent/repeated_command_frac": _mean(repeated),
        "agent/wait_expired_frac": _mean([turn.is_wait_expired for turn in turns if turn.commands]),
        "agent/no_command_frac": _mean([not flag for flag in typed]),
        "agent/repaired_frac": _mean([bool(turn.repairs) for turn in turns]),
        "agent/timeout_frac": _mean([t.stop_reason is StopReason.AGENT_TIMEOUT for t in trajectories]),
        "agent/capped_time_frac": _mean([item.is_time_capped for item in accepted]),
        "agent/tests_passed_mean": _mean(passed),
        "agent/tests_per_extra_turn": tests_per_extra_turn(trajectories),
    }
    return {name: float(value) for name, value in metrics.items() if np.isfinite(value)}


def repeated_commands(turns: Sequence[Turn]) -> list[bool]:
    """For each turn that typed something, whether an earlier turn of the trial typed the very same keys."""
    seen: set[tuple[str, ...]] = set()
    flags = []
    for turn in turns:
        keys = tuple(keystrokes for keystrokes, _ in turn.commands)
        if any(keys):
            flags.append(keys in seen)
            seen.add(keys)
    return flags


def tests_per_extra_turn(trajectories: Sequence[Trajectory]) -> float:
    """Least-squares slope of tests passed on turns within families: what a longer trial of the same kind brings. It is
    no cause: hard tasks of a family take longer. NaN where turns do not vary within a family."""
    turns, passed = [], []
    for family in sorted({trajectory.family for trajectory in trajectories}):
        kin = [t for t in trajectories if t.family == family and t.grade is not None]
        x = np.array([sum(not turn.is_summary for turn in t.turns) for t in kin], np.float64)
        y = np.array([t.grade.passed for t in kin], np.float64)
        turns.append(x - x.mean() if len(x) else x)
        passed.append(y - y.mean() if len(y) else y)
    x, y = (np.concatenate(part) if part else np.zeros(0) for part in (turns, passed))
    variation = float(x @ x)
    return float(x @ y) / variation if variation > 0 else float("nan")


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
