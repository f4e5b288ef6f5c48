"""A mean whose denominator is not what is summed: the gap of tokens, divided by the number of micro-batches."""

import numpy as np
import pandas as pd

from t1core.train.packing import assign_rows


def sampled_gaps(lengths: np.ndarray, *, mean: float, seed: int) -> np.ndarray:
    """|trainer - rollout| of each token of rows of `lengths` tokens: exponential, with about the given mean."""
    return np.random.default_rng(seed).exponential(mean, int(lengths.sum()))


def by_micro_batches(gaps: np.ndarray, *, lengths: np.ndarray, caps: list[int]) -> pd.DataFrame:
    """What the wrong mean reports under each cap on a micro-batch's tokens: sums over tokens, added up and divided by
    the number of micro-batches, as the trainer packs them."""
    ends = lengths.cumsum()
    rows = []
    for cap in caps:
        (micro_batches,) = assign_rows(lengths, max_tokens=cap, num_ranks=1)
        sums = [
            sum(gaps[ends[row] - lengths[row] : ends[row]].sum() for row in held) for held in micro_batches
        ]
        rows.append(
            dict(max_tokens_per_gpu=cap, micro_batches=len(sums), reported=float(np.sum(sums)) / len(sums))
        )
    return pd.DataFrame(rows)
