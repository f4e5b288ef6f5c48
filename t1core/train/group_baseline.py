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
    device = streams.device
    per_row = group_advantages(
        streams.rewards,
        trials=_numbered(np.array(batch.rollout_ids), device),
        groups=_numbered(batch.groups, device),
        normalise_std=normalise_std,
    )
    return per_row[streams.rows] * streams.mask


def _numbered(labels: np.ndarray, device: torch.device) -> torch.Tensor:
    """Equal labels to equal numbers from 0 without gaps, int64 [R]."""
    return torch.from_numpy(np.unique(labels, return_inverse=True)[1].reshape(-1)).to(device)
