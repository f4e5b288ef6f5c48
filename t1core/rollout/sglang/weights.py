"""Weights on their way to the server: checked against the checkpoint it was started from, then packed for a
transport.

SGLang skips a name it does not know with a line in its log, and half-loads before it finds a wrong shape;
hence the check on this side, before anything is sent.
"""

import base64
import io
import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from t1core.rollout.engine import EngineRefused
from t1core.rollout.sglang.served_model import ServedModel, stacked_shapes

TIED_NAME = "lm_head.weight"


def check_weights(tensors: Mapping[str, np.ndarray], *, model: ServedModel) -> None:
    """Every tensor, in its shape, finite; experts stacked or one by one. Raises EngineRefused."""
    given = stacked_shapes({name: array.shape for name, array in tensors.items()})
    optional = {TIED_NAME} if model.is_tied else set()
    missing = sorted(model.shapes.keys() - given.keys() - optional)
    unknown = sorted(given.keys() - model.shapes.keys() - optional)
    if missing or unknown:
        raise EngineRefused(
            f"weights: missing {missing[:3] or 'none'} ({len(missing)}), unknown {unknown[:3] or 'none'} "
            f"({len(unknown)}); send every tensor of the checkpoint under its Hugging Face name"
        )
    for name, shape in given.items():
        if name in model.shapes and tuple(shape) != model.shapes[name]:
            raise EngineRefused(
                f"weights: {name} has shape {tuple(shape)}, the server's has {model.shapes[name]}"
            )
    for name, array in tensors.items():
        if not np.isfinite(array).all():
            raise EngineRefused(
                f"weights: {name} holds NaN or infinity; the trainer diverged, nothing was sent"
            )


def as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The arrays as torch tensors with memory of their own."""
    # a copy: arrays from shared memory are read-only, and torch would alias them as writable
    return {name: torch.from_numpy(np.array(array, order="C")) for name, array in arrays.items()}


def tensor_payload(tensors: Mapping[str, torch.Tensor]) -> str:
    """[(name, tensor)] pickled by value, base64: what update_weights_from_tensor unpickles. 4/3 of the
    weights' bytes.

    By value, since the server is no child of ours and can't open shared memory that we hand over by
    descriptor.
    """
    stream = io.BytesIO()
    pickle.dump(list(tensors.items()), stream, protocol=4)
    return base64.b64encode(stream.getvalue()).decode()


def write_weights(tensors: Mapping[str, torch.Tensor], *, into: Path) -> Path:
    """One safetensors file in the fresh directory `into`, for update_weights_from_disk."""
    into.mkdir(parents=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, into / "model.safetensors")
    return into
