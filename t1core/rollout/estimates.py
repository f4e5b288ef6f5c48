"""What earlier trials tell of a task: how much of it the policy can do, and how long its trials take.

Both are exponential means over the trials seen so far, in the order in which they are shown. A task that was never
tried takes its family's duration, and counts as half done. A trial that was cut took at least as long as it had; where
more was predicted, that stands, so that tasks whose trials are always cut do not come to look short.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from t1core.records import StopReason, Task, Trajectory

_RATE = 0.3  # weight of the newest trial
UNKNOWN_PROGRESS = 0.5


@dataclass
class TaskEstimates:
    """progress: by task, share of its tests passed. task_s, family_s: seconds of a trial, by task and by family."""

    progress: dict[str, float] = field(default_factory=dict)
    task_s: dict[str, float] = field(default_factory=dict)
    family_s: dict[str, float] = field(default_factory=dict)

    def observe(self, trajectory: Trajectory) -> None:
        """Learn from a trial that ended. What something other than the model broke tells nothing."""
        if trajectory.failure is not None:
            return
        if trajectory.grade is not None and trajectory.grade.total:
            passed = trajectory.grade.passed / trajectory.grade.total
            _move(self.progress, trajectory.task_id, passed)
        seconds = trajectory.timings_s.get("total")
        if seconds is None:
            return
        for known, key in ((self.task_s, trajectory.task_id), (self.family_s, trajectory.family)):
            is_cut = trajectory.stop_reason is StopReason.CUT
            _move(known, key, max(seconds, known.get(key, 0.0)) if is_cut else seconds)

    def predicted_s(self, task: Task) -> float | None:
        """Seconds that a trial of the task will take; None before anything of its family ended."""
        return self.task_s.get(task.task_id, self.family_s.get(task.family))

    def uncertainty(self, task_id: str) -> float:
        """4 m (1 - m) of the progress m: 1 where half of the tests pass, 0 where all or none do."""
        progress = self.progress.get(task_id, UNKNOWN_PROGRESS)
        return 4.0 * progress * (1.0 - progress)

    def to_dict(self) -> dict[str, Any]:
        """For a file; `from_dict` gives back the same numbers."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        return cls(**stored)


def _move(known: dict[str, float], key: str, value: float) -> None:
    known[key] = value if key not in known else (1.0 - _RATE) * known[key] + _RATE * value
