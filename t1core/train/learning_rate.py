"""The learning rate of an update: linear warm-up, then constant, linear or cosine down to a floor."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

DecayStyle = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class LearningRate:
    """peak: the rate after the warm-up. warmup_steps and decay_steps count updates of the network from its first; the
    decay starts where the warm-up ends, and from decay_steps on the rate is `floor`. A constant rate has no decay."""

    peak: float
    style: DecayStyle = "constant"
    warmup_steps: int = 0
    decay_steps: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not self.peak > 0:
            raise ValueError(f"lr={self.peak} must be positive")
        if not 0 <= self.floor <= self.peak:
            raise ValueError(f"min_lr={self.floor} must lie between 0 and lr={self.peak}")
        if self.style not in get_args(DecayStyle):
            raise ValueError(
                f"lr_decay_style={self.style!r}: choose one of {', '.join(get_args(DecayStyle))}"
            )
        if self.style != "constant" and self.decay_steps <= self.warmup_steps:
            raise ValueError(
                f"lr_decay_style={self.style!r} needs lr_decay_steps above lr_warmup_steps={self.warmup_steps}, "
                f"not {self.decay_steps}: give the update at which the rate reaches min_lr"
            )

    def at(self, step: int) -> float:
        """The rate of update `step`, counted from 0."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        if self.style == "constant":
            return self.peak
        progress = min(1.0, (step - self.warmup_steps) / (self.decay_steps - self.warmup_steps))
        left = 1 - progress if self.style == "linear" else (1 + math.cos(math.pi * progress)) / 2
        return self.floor + (self.peak - self.floor) * left
