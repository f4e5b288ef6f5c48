"""How long a campaign waits for whom, in seconds."""

from dataclasses import dataclass

from t1core.config import CampaignConfig


@dataclass(frozen=True)
class Deadlines:
    """control_s: a control call. trial_s: a whole trial. progress_s: a training call without a step forward."""

    control_s: float
    trial_s: float
    progress_s: float

    @classmethod
    def of(cls, config: CampaignConfig) -> "Deadlines":
        return cls(
            control_s=config.cluster.control_deadline_s,
            trial_s=config.rollout.trial_deadline_s,
            progress_s=config.cluster.progress_deadline_s,
        )

    @property
    def launch_s(self) -> float:
        """A trial, its clean-up (box, then engine), and the way there and back."""
        return self.trial_s + 3 * self.control_s
