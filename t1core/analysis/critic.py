"""Is the critic worth its size: explained variance by step against one that knows only the number of tests.
"""

import pandas as pd

from t1core.analysis.columns import columns_of


def explained_variance(metrics: pd.DataFrame) -> pd.DataFrame:
    """A row a trained step: step, critic, num_tests_baseline, r2, value_bias; NaN where returns did not vary.
    """
    names = {
        "critic/explained_variance": "critic",
        "critic/ev_num_tests_baseline": "num_tests_baseline",
        "critic/r2": "r2",
        "critic/value_bias": "value_bias",
    }
    return columns_of(metrics, names)
