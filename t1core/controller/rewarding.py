"""The rewards that a step trains on, from its trials' grades; and the words for where they came from."""

from collections import Counter
from collections.abc import Sequence

from t1core.config import RewardSettings
from t1core.records import RewardSource
from t1core.rollout.trial import TrialResult
from t1core.verifier.shaping import GradedTrial, LengthShaping, scaled_by_batch_maximum, shaped_rewards


def training_rewards(accepted: Sequence[TrialResult], settings: RewardSettings) -> list[float]:
    """One reward a trial, which each of its rows carries. Grades, and all metrics but one, keep the plain reward."""
    trials = []
    for item in accepted:
        grade = item.trajectory.grade
        assert grade is not None and grade.reward is not None
        trials.append(
            GradedTrial(grade.reward, len(item.trajectory.turns), solved=grade.solved, total=grade.total)
        )
    shaping = LengthShaping(
        kind=settings.shaping,
        scale=settings.scale,
        healthy_turns=settings.healthy_turns,
        bonus_tests=settings.bonus_tests,
        penalty_tests=settings.penalty_tests,
        discount_per_turn=settings.discount_per_turn,
        discount_floor=settings.discount_floor,
        idle_penalty_tests=settings.idle_penalty_tests,
    )
    rewards = shaped_rewards(trials, shaping=shaping)
    return scaled_by_batch_maximum(rewards) if settings.scale_by_batch_max else rewards


def source_line(sources: Sequence[RewardSource]) -> str | None:
    """One line for people when some reward was not counted from a report; None when all were."""
    counts = Counter(sources)
    if set(counts) <= {RewardSource.CTRF}:
        return None
    told = ", ".join(
        f"{source} {count} ({count / len(sources):.0%})" for source, count in sorted(counts.items())
    )
    line = f"rewards by source: {told}"
    if counts[RewardSource.NO_REPORT]:
        line += (
            "; a missing or unusable report scores 0 here, where T1 falls back to the verifier's exit code"
        )
    return line
