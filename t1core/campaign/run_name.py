"""The name of a new run's directory."""

import os
import time

from t1core.config import CampaignConfig


def new_run_name(config: CampaignConfig) -> str:
    """A name that sorts by time and tells the seed."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-seed{config.seed}-{os.getpid()}"
