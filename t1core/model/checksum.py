"""One checksum for weights wherever they lie: what the trainer sends and what an engine holds must agree."""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch


def weight_checksum(
    tensors: Mapping[str, torch.Tensor | np.ndarray], *, dtype: torch.dtype | None = None
) -> str:
    """blake2b over (name, dtype, shape, bytes) of every tensor, names ascending, cast to `dtype` first if given."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        value = tensors[name]
        # A copy where the array is read-only (shared memory): torch would alias it as writable.
        tensor = torch.from_numpy(np.array(value, order="C")) if isinstance(value, np.ndarray) else value
        # A copy of its own: a storage that numpy has looked into cannot be emptied any more, as offloading does.
        tensor = tensor.detach().to(device="cpu", dtype=dtype or tensor.dtype, copy=True).contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            digest.update(tensor.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
