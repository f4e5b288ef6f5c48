"""Checksums of weights: one that the trainer and every engine agree on, and a fast one where the weights lie."""

import hashlib
from collections.abc import Callable, Mapping

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


_WORDS_AT_ONCE = 2**24


def fast_digest(
    tensors: Mapping[str, torch.Tensor], *, before: Callable[[torch.Tensor], None] | None = None
) -> str:
    """A digest of (name, dtype, shape, bytes), summed up on the device of each tensor: at the speed of its memory.
    Tensors are read in the order of their names, each after `before` was called with it.

    The sum over 8-byte words x_i of x_i (2 i + 1), modulo 2^64. Every factor is odd, so one changed word always changes
    it; it is no protection against someone who wants it to stay. A fleeting check: words depend on the byte order.
    """
    names = sorted(tensors)
    factors: dict[torch.device, torch.Tensor] = {}
    for device in {tensor.device for tensor in tensors.values()}:
        most = max(_num_words(tensor) for tensor in tensors.values() if tensor.device == device)
        factors[device] = torch.arange(min(most, _WORDS_AT_ONCE), device=device).mul_(2).add_(1)
    sums = []
    for name in names:
        if before is not None:
            before(tensors[name])
        sums.append(_word_sum(tensors[name], factors[tensors[name].device]))
    # One wait for the device, not one a tensor.
    values = torch.stack([total.to(sums[0].device) for total in sums]).tolist() if sums else []
    digest = hashlib.blake2b(digest_size=16)
    for name, value in zip(names, values, strict=True):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {value}\n".encode())
    return digest.hexdigest()


def _num_words(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size() // 8


def _word_sum(tensor: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """factors: int64 2 i + 1, as many as are summed at once."""
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    whole = len(raw) // 8 * 8
    if raw.storage_offset() % 8:  # a view that starts off the grid of words
        raw = raw.clone()
    words = raw[:whole].view(torch.int64)
    total = torch.zeros((), dtype=torch.int64, device=raw.device)
    for begin in range(0, len(words), _WORDS_AT_ONCE):
        part = words[begin : begin + _WORDS_AT_ONCE]
        total = total + (part * factors[: len(part)]).sum()
        if begin:  # the factors are those of the first part
            total = total + part.sum() * (2 * begin)
    if whole < len(raw):
        rest = torch.nn.functional.pad(raw[whole:], (0, 8 - (len(raw) - whole))).view(torch.int64)
        total = total + rest.sum() * (2 * (whole // 8) + 1)
    return total
