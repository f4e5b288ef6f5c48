"""The GPUs a campaign's plan is held to before it starts."""

from typing import Self

from pydantic import Field, model_validator

from t1core.config.section import Settings


class CapacitySettings(Settings):
    gpu_memory_gib: float = Field(0.0, ge=0)
    """Memory of one training GPU. The start refuses a plan that does not fit it. 0: not checked, as on a CPU."""
    calibration: str = ""
    """Result of `t1 calibrate` on such a GPU. Empty: T1's published coefficients."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.calibration and not self.gpu_memory_gib:
            raise ValueError(
                f"calibration={self.calibration!r} has no effect with gpu_memory_gib=0, which checks nothing: set it, "
                "or leave the calibration out"
            )
        return self
