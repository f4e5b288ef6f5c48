"""A batch: the rows of one step, concatenated, so that it crosses processes without a copy and without Python lists."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from t1core.records.row import TrainingRow


@dataclass(frozen=True)
class Batch:
    """Rows end to end. `cu_seqlens` int64 [rows + 1] delimits tokens; row i's routes are
    `routed_experts[cu_seqlens[i] - i : cu_seqlens[i + 1] - (i + 1)]` since each row has one route fewer than tokens.

    tokens int32 [T]; loss_mask uint8 [T]; rollout_log_probs float32 [T]; weight_versions int32 [T];
    routed_experts uint8 [T - rows, L, k] or None; rewards float32 [rows]; num_tests int32 [rows]; groups int32 [rows],
    equal for rows whose trials are samples of one task, or None.
    """

    step: int
    rollout_ids: tuple[str, ...]
    tokens: np.ndarray
    cu_seqlens: np.ndarray
    loss_mask: np.ndarray
    rollout_log_probs: np.ndarray
    weight_versions: np.ndarray
    routed_experts: np.ndarray | None
    rewards: np.ndarray
    num_tests: np.ndarray
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rollout_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64 [rows]."""
        return np.diff(self.cu_seqlens)

    def routes(self, row: int) -> np.ndarray:
        """Routes of one row, [N - 1, L, k], a view."""
        assert self.routed_experts is not None
        return self.routed_experts[self.cu_seqlens[row] - row : self.cu_seqlens[row + 1] - (row + 1)]

    def take_rows(self, rows: Sequence[int]) -> "Batch":
        """The same batch with only these rows, in this order; at least one."""
        assert len(rows), "a batch needs at least one row"
        tokens = np.concatenate([np.arange(self.cu_seqlens[row], self.cu_seqlens[row + 1]) for row in rows])
        routes = None
        if self.routed_experts is not None:
            routes = np.concatenate([self.routes(row) for row in rows])
        return Batch(
            step=self.step,
            rollout_ids=tuple(self.rollout_ids[row] for row in rows),
            tokens=self.tokens[tokens],
            cu_seqlens=np.concatenate([[0], np.cumsum(self.lengths()[list(rows)])]).astype(np.int64),
            loss_mask=self.loss_mask[tokens],
            rollout_log_probs=self.rollout_log_probs[tokens],
            weight_versions=self.weight_versions[tokens],
            routed_experts=routes,
            rewards=self.rewards[list(rows)],
            num_tests=self.num_tests[list(rows)],
            groups=None if self.groups is None else self.groups[list(rows)],
        )

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[TrainingRow],
        *,
        step: int,
        num_tests: Sequence[int],
        groups: Sequence[int] | None = None,
    ) -> "Batch":
        """Concatenate rows. Either all rows carry routes or none does. num_tests and groups have an entry a row."""
        assert rows, "a batch needs at least one row"
        with_routes = {row.rollout_routed_experts is not None for row in rows}
        assert len(with_routes) == 1, "some rows carry routes and some do not"
        return cls(
            step=step,
            rollout_ids=tuple(row.rollout_id for row in rows),
            tokens=np.concatenate([row.tokens for row in rows]).astype(np.int32, copy=False),
            cu_seqlens=np.concatenate([[0], np.cumsum([len(row.tokens) for row in rows])]).astype(np.int64),
            loss_mask=np.concatenate([row.loss_mask for row in rows]),
            rollout_log_probs=np.concatenate([row.rollout_log_probs for row in rows]),
            weight_versions=np.concatenate([row.weight_versions for row in rows]),
            routed_experts=np.concatenate([row.rollout_routed_experts for row in rows])
            if with_routes.pop()
            else None,
            rewards=np.array([row.reward for row in rows], dtype=np.float32),
            num_tests=np.array(num_tests, dtype=np.int32),
            groups=None if groups is None else np.array(groups, dtype=np.int32),
        )
