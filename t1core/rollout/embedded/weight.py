"""Weights in: checked as a whole, cast to the engine's dtype, written in place, and summed up in a checksum."""

from collections.abc import Mapping

import numpy as np
import torch

from t1core.model.checksum import weight_checksum
from t1core.rollout.engine import EngineRefused


def load_weights(model: torch.nn.Module, tensors: Mapping[str, np.ndarray], *, tied: frozenset[str]) -> str:
    """Write `tensors` (Hugging Face names, any float dtype) over the model's own, all or nothing.

    tied: names that share another's storage and may be left out. Returns `weight_checksum` of what is now stored.
    Raises EngineRefused, with nothing changed, for missing, unknown, misshapen or non-finite tensors.
    """
    own = model.state_dict()
    missing = sorted(own.keys() - tensors.keys() - tied)
    unknown = sorted(tensors.keys() - own.keys())
    if missing or unknown:
        raise EngineRefused(
            f"weights: missing {missing[:3] or 'none'} ({len(missing)}), unknown {unknown[:3] or 'none'} "
            f"({len(unknown)}); send every tensor of the checkpoint under its Hugging Face name"
        )
    for name, array in tensors.items():
        if tuple(array.shape) != tuple(own[name].shape):
            raise EngineRefused(
                f"weights: {name} has shape {tuple(array.shape)}, the engine's has {tuple(own[name].shape)}; "
                "the engine must be started from a checkpoint of the same model"
            )
        if not np.isfinite(array).all():
            raise EngineRefused(
                f"weights: {name} holds NaN or infinity; the trainer diverged, nothing was loaded"
            )
    with torch.no_grad():
        for name, array in tensors.items():
            # a copy: arrays from shared memory are read-only, and torch would alias them as writable
            own[name].copy_(torch.from_numpy(np.array(array, order="C")))
    return weight_checksum(own)
