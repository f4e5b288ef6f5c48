"""The denominators: how much each token's loss weighs, stated once for the whole global batch.

A loss is then sum_j w_j * l_j, so it is the same however the batch is cut into micro-batches or spread over
ranks: each part adds its own terms and nothing is divided afterwards.
"""

from typing import Literal

import torch

Aggregation = Literal["row_mean", "trial_mean", "token_mean"]


def token_weights(
    mask: torch.Tensor, *, rows: torch.Tensor, trials: torch.Tensor, aggregation: Aggregation
) -> torch.Tensor:
    """float32 [T], 0 where the mask is 0.

    row_mean (T1's preset; slime's sum of sample means over the global batch size): 1 / (trainable tokens of
    the row times R). R counts every row of the global batch, also those without a trainable token, and each
    chunk of a split trial as a row, so that a trial of c chunks weighs as much as c trials. trial_mean: the same
    with a trial's chunks taken together, so that each trial weighs alike and a chunk its share of the trial's
    tokens. token_mean: 1 / (trainable tokens of the global batch). mask [T] bool or integer; rows int64 [T];
    trials int64 [R], the trial of each row, counted from 0 without a gap.
    """
    kept = mask.bool()
    if aggregation == "token_mean":
        return kept.float() / kept.sum().clamp(min=1).float()
    if aggregation not in ("row_mean", "trial_mean"):
        raise ValueError(f"loss_aggregation={aggregation!r}: choose 'row_mean', 'trial_mean' or 'token_mean'")
    owner, num_owners = rows, len(trials)
    if aggregation == "trial_mean":
        owner, num_owners = trials[rows], int(trials.max()) + 1
    counts = torch.zeros(num_owners, dtype=torch.int64, device=mask.device).index_add_(0, owner, kept.long())
    per_token = 1.0 / (counts.clamp(min=1).float() * num_owners)
    return per_token[owner] * kept
