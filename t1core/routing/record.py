"""A routing record: [tokens, L, k] expert ids, prompt included, ids ascending within k, in the smallest exact
dtype.
"""

import numpy as np


def route_dtype(num_experts: int) -> np.dtype:
    """The smallest dtype that holds ids 0..num_experts-1: uint8 up to 256 (384 B a token at 48 layers of 8),
    then uint16 up to 65,536, else int32.
    """
    if num_experts < 1:
        raise ValueError(f"num_experts is {num_experts}; a routed model has at least 1")
    return np.dtype(np.uint8 if num_experts <= 256 else np.uint16 if num_experts <= 65_536 else np.int32)


def canonical(routes: np.ndarray) -> np.ndarray:
    """Sort ids within k: engines give them in no fixed order, and replay needs only the set. routes: [tokens,
    L, k].
    """
    return np.sort(routes, axis=-1)


def compact(routes: np.ndarray, *, num_experts: int) -> np.ndarray:
    """Cast to `route_dtype(num_experts)` without loss. Raises ValueError for ids that don't fit the expert
    count.
    """
    _check_range(routes, num_experts=num_experts)
    return np.ascontiguousarray(routes, dtype=route_dtype(num_experts))


def validate(routes: np.ndarray, *, num_tokens: int, num_experts: int) -> None:
    """Refuse a record that can't be that of `num_tokens` tokens (the last of which was never forwarded).

    routes: [num_tokens - 1, L, k]. Raises ValueError for a wrong count, ids out of range, ids not strictly
    ascending within k (unsorted, or one expert twice), and a record of zeros, which is what an engine returns
    that recorded nothing.
    """
    if routes.ndim != 3 or len(routes) != num_tokens - 1:
        raise ValueError(
            f"routes have shape {routes.shape} for {num_tokens} tokens, expected [{num_tokens - 1}, layers, k]; "
            "the engine returned stale, short or full-length rows"
        )
    _check_range(routes, num_experts=num_experts)
    if routes.size and not routes.any():
        raise ValueError(f"all {len(routes)} routing rows are zero; the engine recorded nothing")
    flat = np.ascontiguousarray(routes).reshape(-1)
    rises = flat[1:] > flat[:-1]
    rises[routes.shape[-1] - 1 :: routes.shape[-1]] = (
        True  # from one choice's last id to the next one's first
    )
    if not rises.all():
        row = int(np.argmin(rises)) // (routes.shape[1] * routes.shape[2])
        raise ValueError(f"routing row {row} is not strictly ascending within k; sort it with canonical()")


def _check_range(routes: np.ndarray, *, num_experts: int) -> None:
    if routes.size and (int(routes.min()) < 0 or int(routes.max()) >= num_experts):
        raise ValueError(
            f"routes span {routes.min()}..{routes.max()}; this model's experts are 0..{num_experts - 1}"
        )
