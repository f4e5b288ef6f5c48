"""How far trainer and engine disagree about the same tokens, with routes replayed and with routing left free."""

import pandas as pd

from t1core.analysis.columns import columns_of


def logprob_gap(metrics: pd.DataFrame) -> pd.DataFrame:
    """A row a step: step, replayed, free (mean absolute gap in nats), replayed_mean, free_mean (signed)."""
    names = {
        "logprob_gap/abs_mean": "replayed",
        "logprob_gap_free/abs_mean": "free",
        "logprob_gap/mean": "replayed_mean",
        "logprob_gap_free/mean": "free_mean",
    }
    return columns_of(metrics, names)
