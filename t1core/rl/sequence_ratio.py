"""Row-level log ratios: GSPO's geometric mean (Zheng et al. 2507.18071, eq. 7), and sums over a row.

log s = (1 / n) sum_t (logp_t - logp_behaviour_t)        over the n trainable tokens of the row
"""

from typing import Literal

import torch


def row_log_ratio(
    log_ratio: torch.Tensor,
    *,
    mask: torch.Tensor,
    rows: torch.Tensor,
    num_rows: int,
    reduce: Literal["mean", "sum"] = "mean",
) -> torch.Tensor:
    """Each token's entry is its row's mean (or sum) of `log_ratio` over trainable tokens: float64 [T], 0 where masked.

    Rows must be whole here: give the streams of the global batch, not a rank's shard of them.
    """
    kept = mask.bool()
    value = torch.where(kept, log_ratio, 0.0).double()
    sums = torch.zeros(num_rows, dtype=torch.float64, device=value.device).index_add_(0, rows, value)
    if reduce == "mean":
        counts = torch.zeros_like(sums).index_add_(0, rows, kept.double())
        sums = sums / counts.clamp(min=1.0)
    return sums[rows] * kept
