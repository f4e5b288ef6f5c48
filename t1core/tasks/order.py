"""The order in which a pool's tasks are drawn: a seeded shuffle an epoch, as a pure function of position.

A resumed run needs no sampler state: position is the number of tasks launched so far.
"""

from collections.abc import Sequence

import numpy as np


def epoch_order(num_tasks: int, *, seed: int, epoch: int) -> np.ndarray:
    """A permutation of range(num_tasks), int64 [num_tasks], that depends only on its arguments."""
    _check(num_tasks)
    return np.random.default_rng([seed, epoch]).permutation(num_tasks).astype(np.int64)


def draws(num_tasks: int, *, seed: int, start: int, number: int, shuffle: bool = True) -> np.ndarray:
    """Task indices for positions start .. start + number - 1, int64 [number].

    Position p is element p % num_tasks of epoch p // num_tasks, so each epoch visits every task once. Without
    `shuffle` every epoch is in index order.
    """
    _check(num_tasks)
    if start < 0 or number < 0:
        raise ValueError(f"start {start} and number {number} must be at least 0")
    epochs, places = np.divmod(np.arange(start, start + number, dtype=np.int64), num_tasks)
    if not shuffle:
        return places
    orders = {epoch: epoch_order(num_tasks, seed=seed, epoch=epoch) for epoch in np.unique(epochs).tolist()}
    return np.array([orders[e][p] for e, p in zip(epochs.tolist(), places, strict=True)], dtype=np.int64)


def spread[T](items: Sequence[T], number: int | None) -> list[T]:
    """`number` of the items at even distances, all for None."""
    if number is None or number >= len(items):
        return list(items)
    return [items[i * len(items) // number] for i in range(number)]


def _check(num_tasks: int) -> None:
    if num_tasks < 1:
        raise ValueError("num_tasks is 0: there is nothing to draw from; give a pool or split with tasks")
