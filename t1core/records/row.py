"""A training row: the token stream of one trial (or one chunk of it) as the trainer consumes it."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class PrefixRelation(StrEnum):
    """How a turn's prompt relates to the tokens before it (T1 section 4.2), in the order they are tried."""

    STRICT = "strict"
    NORMALIZED = "normalized"
    RETOKENIZED = "retokenized"
    SPLIT = "split"


class RowStatus(StrEnum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"


@dataclass(frozen=True)
class TurnSpan:
    """Sampled tokens of one call: positions [start, end) of the row."""

    model_call_id: str
    start: int
    end: int
    relation: PrefixRelation


@dataclass(frozen=True)
class TrainingRow:
    """slime's `Sample`, as arrays over all N tokens.

    tokens: int32 [N]. loss_mask: uint8 [N], 1 exactly at sampled tokens. rollout_log_probs: float32 [N], 0 where the
    mask is 0. rollout_routed_experts: uint8 [N - 1, L, k], row j routes the position that predicts token j + 1, ids
    ascending within k. weight_versions: int32 [N], -1 where the mask is 0. response_length counts the tokens after the
    first prompt.
    """

    rollout_id: str
    chunk: int
    tokens: np.ndarray
    response_length: int
    loss_mask: np.ndarray
    rollout_log_probs: np.ndarray
    rollout_routed_experts: np.ndarray | None
    weight_versions: np.ndarray
    reward: float
    status: RowStatus
    spans: tuple[TurnSpan, ...]

    def __post_init__(self) -> None:
        n = len(self.tokens)
        assert self.loss_mask.shape == self.rollout_log_probs.shape == self.weight_versions.shape == (n,)
        if self.rollout_routed_experts is not None:
            rows = len(self.rollout_routed_experts)
            assert rows == n - 1, (
                f"rollout {self.rollout_id}: {rows} routing rows for {n} tokens, expected {n - 1}"
            )

    @property
    def num_loss_tokens(self) -> int:
        return int(self.loss_mask.sum())
