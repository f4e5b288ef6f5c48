"""What a training step answers. Free of torch, so that the driver can hold one."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TrainResult:
    """What a step did. `per_token` arrays are float32 [T], aligned with `batch.tokens`; alike on every rank.

    `timings_s` are wall-clock seconds a phase, `cpu_s` this process's CPU seconds for the whole step.
    """

    metrics: dict[str, float]
    per_token: dict[str, np.ndarray]
    timings_s: dict[str, float]
    cpu_s: float
