"""Shared prefixes: the beginning that many trials' first prompts have in common is forwarded once a weight
version.

A prefix is learnt when two prompts without a session agree on at least `_ALIGN` tokens. What is learnt is
token ids, so it outlives a weight update; the states do not.
"""

import numpy as np

from t1core.rollout.embedded.lane import LaneState

_ALIGN = 64  # the recurrent layers work in chunks of 64: cutting elsewhere would change the rounding of what follows
_MAX_KNOWN = 8


class SharedPrefixes:
    """Known prefixes, the most recently useful last, and their states under the present weights."""

    def __init__(self) -> None:
        self._known: dict[bytes, np.ndarray] = {}
        self._states: dict[bytes, LaneState] = {}
        self._previous = np.zeros(0, dtype=np.int32)

    @property
    def num_tokens(self) -> int:
        """Tokens whose state is kept."""
        return sum(len(state.ids) for state in self._states.values())

    def learn(self, ids: np.ndarray) -> None:
        """Compare a prompt with the one before and remember what they share."""
        n = min(len(ids), len(self._previous))
        differ = np.flatnonzero(ids[:n] != self._previous[:n])
        common = (int(differ[0]) if len(differ) else n) // _ALIGN * _ALIGN
        self._previous = ids
        if common == 0:
            return
        prefix = ids[:common].copy()
        self._known[prefix.tobytes()] = self._known.pop(prefix.tobytes(), prefix)
        while len(self._known) > _MAX_KNOWN:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._states.pop(oldest, None)

    def longest(self, ids: np.ndarray) -> tuple[int, LaneState | None]:
        """Length of the longest known proper prefix of `ids` (0 without), and its state if it was forwarded
        already.
        """
        fitting = [p for p in self._known.values() if len(p) < len(ids) and np.array_equal(p, ids[: len(p)])]
        if not fitting:
            return 0, None
        prefix = max(fitting, key=len)
        return len(prefix), self._states.get(prefix.tobytes())

    def keep(self, state: LaneState) -> None:
        """Keep the state of a known prefix."""
        self._states[state.ids.tobytes()] = state

    def forget_states(self) -> None:
        """Drop what was forwarded under weights that are no more."""
        self._states.clear()
