"""Behaviour snapshots: host copies of the actor's weights, by the version under which they were published.

The denominator of PPO's ratio is the policy that sampled. In the pipelined loop that is one version behind
the live actor, so its weights are put back for one scoring pass and the live ones restored after it, bit for
bit. Where trials live on across updates, each token is scored by the snapshot that sampled it, one pass a version.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from t1core.train.learner import Learner


@dataclass(frozen=True)
class _Snapshot:
    num_steps: int
    weights: dict[str, torch.Tensor]


class BehaviourSnapshots:
    """The newest `most_kept` published versions of one learner's weights (this rank's shard), and `pinned`, which is
    never dropped: the starting policy, where a loss refers to it."""

    def __init__(self, learner: Learner, *, pinned: int | None = None, most_kept: int = 2) -> None:
        self._learner = learner
        self._most_kept = most_kept
        self.pinned = pinned
        self._kept: dict[int, _Snapshot] = {}

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions kept, oldest first."""
        return tuple(sorted(self._kept))

    @property
    def most_copies(self) -> int:
        """Host copies of the weights at once, at most: those kept, and the live ones while others are restored."""
        return self._most_kept + 1 + (self.pinned is not None)

    def take(self, version: int) -> None:
        """Copy the live weights as `version`, which must be the newest, and drop all but the newest
        `most_kept` and the pinned one."""
        assert not self._kept or version > max(self._kept), f"version {version} after {self.versions}"
        self._kept[version] = _Snapshot(self._learner.num_steps, self._copy())
        for old in self.versions[: -self._most_kept]:
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


def score_by_sampler(
    snapshots: BehaviourSnapshots,
    score: Callable[[], torch.Tensor],
    *,
    samplers: Sequence[int],
    versions: np.ndarray,
) -> torch.Tensor:
    """`score()`, [..., T], of each token under the weights that sampled it: one pass for each of `samplers`, ascending.

    `versions` int32 [T]; tokens that nobody sampled take the newest's score.
    """
    scores = torch.empty(0)
    for version in reversed(samplers):
        with snapshots.restored(version):
            passed = score()
        if version == samplers[-1]:
            scores = passed
        else:
            scores = torch.where(torch.from_numpy(versions == version).to(passed.device), passed, scores)
    return scores
