"""The loop: rollout and training side by side, one step apart, with a publication barrier between steps."""

from t1core.controller.campaign import Campaign
from t1core.controller.checkpointing import Resumption, newest_resumption
from t1core.controller.loop import run_loop

__all__ = ["Campaign", "Resumption", "newest_resumption", "run_loop"]
