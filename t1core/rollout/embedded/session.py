"""Kept sessions: what each trial has forwarded so far, so that its next turn prefills only the new tokens."""

from collections import OrderedDict

import numpy as np

from t1core.rollout.embedded.lane import LaneState


class Sessions:
    """Least recently used first out, once more than `max_tokens` tokens are kept."""

    def __init__(self, *, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._kept: OrderedDict[str, LaneState] = OrderedDict()
        self.num_tokens = 0

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, session_id: str, *, ids: np.ndarray, version: int) -> LaneState | None:
        """The session's state if it was made under `version` and `ids` strictly extends it; it is no longer
        kept.

        The version is part of the key: a state made under other weights is never handed out.
        """
        state = self._pop(session_id)
        if state is None or state.version != version or not state.is_strict_prefix_of(ids):
            return None
        return state

    def keep(self, session_id: str, state: LaneState) -> None:
        """Keep a state in place of whatever the session had."""
        self._pop(session_id)
        if len(state.ids) > self._max_tokens:
            return
        self._kept[session_id] = state
        self.num_tokens += len(state.ids)
        while self.num_tokens > self._max_tokens:
            self._pop(next(iter(self._kept)))

    def release(self, session_id: str) -> None:
        self._pop(session_id)

    def clear(self) -> None:
        self._kept.clear()
        self.num_tokens = 0

    def _pop(self, session_id: str) -> LaneState | None:
        state = self._kept.pop(session_id, None)
        if state is not None:
            self.num_tokens -= len(state.ids)
        return state
