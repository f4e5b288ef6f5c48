"""Adam's settings for one network."""

from dataclasses import dataclass, field

from t1core.train.learning_rate import LearningRate


@dataclass(frozen=True)
class Adam:
    """weight_decay is decoupled; clip_grad bounds the global gradient norm. Betas are T1's."""

    lr: LearningRate = field(default_factory=lambda: LearningRate(1e-6))
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_grad: float = 1.0

    def __post_init__(self) -> None:
        if not self.clip_grad > 0:
            raise ValueError(f"clip_grad={self.clip_grad} must be positive")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"Adam's betas={self.betas} must lie between 0 and 1")
