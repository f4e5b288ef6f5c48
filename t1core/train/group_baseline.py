"""GRPO's part of a step: each row's advantage from the other samples of its task, spread over its trainable tokens."""

import numpy as np
import torch

from t1core.records.batch import Batch
from t1core.rl import group_advantages
from t1core.train.streams import BatchStreams


def group_targets(batch: Batch, *, streams: BatchStreams, normalise_std: bool) -> torch.Tensor:
    """Advantages float32 [T], 0 where the mask is 0. ValueError for a batch without groups."""
    if batch.groups is None:
        raise ValueError(
            "the batch does not say which trials are samples of one task, which advantage='grpo' compares: sample "
            "every task several times (rollout.samples_per_task), or use advantage='gae'"
        )
    per_row = group_advantages(
        streams.rewards,
        trials=streams.trials,
        groups=torch.from_numpy(np.unique(batch.groups, return_inverse=True)[1].reshape(-1)).to(
            streams.device
        ),
        normalise_std=normalise_std,
    )
    return per_row[streams.rows] * streams.mask
