"""Behaviour snapshots: host copies of the actor's weights, by the version under which they were published.

The denominator of PPO's ratio is the policy that sampled. In the pipelined loop that is one version behind
the live actor, so its weights are put back for one scoring pass and the live ones restored after it, bit for
bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from t1core.train.learner import Learner

_MOST_KEPT = 2


@dataclass(frozen=True)
class _Snapshot:
    num_steps: int
    weights: dict[str, torch.Tensor]


class BehaviourSnapshots:
    """The newest two published versions of one learner's weights (this rank's shard), and `pinned`, which is never
    dropped: the starting policy, where a loss refers to it."""

    def __init__(self, learner: Learner, *, pinned: int | None = None) -> None:
        self._learner = learner
        self.pinned = pinned
        self._kept: dict[int, _Snapshot] = {}

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions kept, oldest first."""
        return tuple(sorted(self._kept))

    @property
    def most_copies(self) -> int:
        """Host copies of the weights at once, at most: those kept, and the live ones while others are restored."""
        return _MOST_KEPT + 1 + (self.pinned is not None)

    def take(self, version: int) -> None:
        """Copy the live weights as `version`, which must be the newest, and drop all but the newest two
        and the pinned one."""
        assert not self._kept or version > max(self._kept), f"version {version} after {self.versions}"
        self._kept[version] = _Snapshot(self._learner.num_steps, self._copy())
        for old in self.versions[:-_MOST_KEPT]:
            if old != self.pinned:
                del self._kept[old]

    def clear(self) -> None:
        """Forget all versions."""
        self._kept.clear()

    def is_live(self, version: int) -> bool:
        """Whether the actor has made no step since `version` was taken."""
        return self._kept[version].num_steps == self._learner.num_steps

    @contextmanager
    def restored(self, version: int) -> Iterator[None]:
        """Within the block the learner computes with the weights of `version`."""
        assert version in self._kept, f"no snapshot of version {version}; kept: {self.versions}"
        if self.is_live(version):
            yield
            return
        live = self._copy()
        try:
            self._load(self._kept[version].weights)
            yield
        finally:
            self._load(live)

    def _copy(self) -> dict[str, torch.Tensor]:
        return {name: weight.to("cpu", copy=True) for name, weight in self._learner.parameters()}

    def _load(self, weights: dict[str, torch.Tensor]) -> None:
        for name, weight in self._learner.parameters():
            weight.copy_(weights[name])
