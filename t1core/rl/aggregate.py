"""The denominators: how much each token's loss weighs, stated once for the whole global batch.

A loss is then sum_j w_j * l_j, so it is the same however the batch is cut into micro-batches or spread over
ranks: each part adds its own terms and nothing is divided afterwards.
"""

from typing import Literal

import torch

Aggregation = Literal["row_mean", "token_mean"]


def token_weights(
    mask: torch.Tensor, *, rows: torch.Tensor, num_rows: int, aggregation: Aggregation
) -> torch.Tensor:
    """float32 [T], 0 where the mask is 0.

    row_mean (T1's preset; slime's sum of sample means over the global batch size): 1 / (trainable tokens of
    the row times `num_rows`). `num_rows` counts every row of the global batch, also those without a trainable
    token, and each chunk of a split trial as a row. token_mean: 1 / (trainable tokens of the global batch).
    mask [T] bool or integer; rows int64 [T].
    """
    kept = mask.bool()
    if aggregation == "token_mean":
        return kept.float() / kept.sum().clamp(min=1).float()
    if aggregation != "row_mean":
        raise ValueError(f"loss_aggregation={aggregation!r}: choose 'row_mean' or 'token_mean'")
    counts = torch.zeros(num_rows, dtype=torch.int64, device=mask.device).index_add_(0, rows, kept.long())
    per_token = 1.0 / (counts.clamp(min=1).float() * num_rows)
    return per_token[rows] * kept
