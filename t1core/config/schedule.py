"""Which tasks are launched, and in what order: off unless asked for."""

from typing import Self

from pydantic import Field, model_validator

from t1core.config.section import Settings

_FLOOR = 0.25


class ScheduleSettings(Settings):
    longest_first: bool = False
    """Launch the trials of a step in the order of their predicted durations, longest first, so that fewer long ones are
    in the tail. What was never tried goes first."""
    by_difficulty: bool = False
    """Pass over tasks in the walk through an epoch, mostly those whose tests all pass or all fail: a task is launched
    with probability (floor + 4 m (1 - m)) / (floor + 1), m being the share of its tests passed lately, 1/2 before."""
    weight_floor: float = Field(_FLOOR, gt=0)
    """The floor: no task's chance to be launched is below floor / (floor + 1) an epoch."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.weight_floor != _FLOOR and not self.by_difficulty:
            raise ValueError(
                f"weight_floor={self.weight_floor} has no effect with by_difficulty=false: leave it out, or turn that "
                "on"
            )
        return self
