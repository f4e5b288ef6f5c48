"""The loop: rollout and training side by side, one step apart, with a publication barrier between steps."""

from t1core.controller.campaign import Campaign
from t1core.controller.loop import run_loop

__all__ = ["Campaign", "run_loop"]
