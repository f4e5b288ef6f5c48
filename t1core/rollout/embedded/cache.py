"""The lanes, dressed as a transformers cache, so that the model's own forward reads and writes them.

One forward covers neighbouring lanes: several new tokens each, padded on the right (prefill), or one token
each (decode). Every lane "has a previous state": a fresh one's is zeros, which is what the model assumes
without one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from transformers import Cache

from t1core.rollout.embedded.lane import Lanes


@dataclass(frozen=True)
class Window:
    """New tokens start[i]..end[i]-1 of lane first + i, as a batch of shape [n, width], padded on the right."""

    first: int
    start: np.ndarray
    end: np.ndarray

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + len(self.start))

    @property
    def lengths(self) -> np.ndarray:
        return self.end - self.start

    @property
    def width(self) -> int:
        return int(self.lengths.max())

    @property
    def is_padded(self) -> bool:
        return bool((self.lengths != self.width).any())

    def positions(self) -> np.ndarray:
        """Position of each batch cell in its sequence, int64 [n, width]; padding counts on."""
        return self.start[:, None] + np.arange(self.width)

    def is_token(self) -> np.ndarray:
        """True at tokens, False at padding, [n, width]."""
        return np.arange(self.width) < self.lengths[:, None]


class LaneCache(Cache):
    """Give it a window by `aim`, then run one forward; the layers write through to the lanes."""

    def __init__(self, lanes: Lanes) -> None:
        super().__init__(layers=[])
        self._lanes = lanes

    def aim(self, window: Window) -> None:
        """The next forward brings the tokens of this window."""
        self._rows, self._end = window.rows, int(window.end.max())
        cells = np.flatnonzero(window.is_token())
        lane = np.arange(len(window.start)) + window.first
        flat = lane[:, None] * self._lanes.capacity + window.positions()
        self._target = torch.from_numpy(flat.reshape(-1)[cells])
        self._cells = torch.from_numpy(cells) if window.is_padded else None
        kernel = np.arange(self._lanes.shape.conv_kernel)
        last = torch.from_numpy(window.lengths[:, None] + kernel)[:, None]
        self._last = last.expand(-1, self._lanes.shape.conv_dim, -1) if window.is_padded else None

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store [n, heads, width, dim] and return [n, heads, longest so far, dim]; the caller masks shorter
        lanes.
        """
        return (
            self._put(key_states, store=self._lanes.keys[layer_idx]),
            self._put(value_states, store=self._lanes.values[layer_idx]),
        )

    def _put(self, new: torch.Tensor, *, store: torch.Tensor) -> torch.Tensor:
        tokens = new.transpose(1, 2).reshape(-1, *store.shape[2:])
        if self._cells is not None:
            tokens = tokens[self._cells]
        store.view(-1, *store.shape[2:]).index_copy_(0, self._target, tokens)
        return store[self._rows, : self._end].transpose(1, 2)

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor:
        return self._lanes.conv[layer_idx][self._rows]

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: object
    ) -> torch.Tensor:
        """Take [n, dim, width], return it behind the stored columns, and store the last columns before
        padding.
        """
        state = self._lanes.conv[layer_idx][self._rows]
        extended = torch.cat([state, conv_states], dim=-1)
        is_plain = self._last is None
        state.copy_(extended[..., -state.shape[-1] :] if is_plain else extended.gather(-1, self._last))
        return extended

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor:
        return self._lanes.recurrent[layer_idx][self._rows]

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: object
    ) -> torch.Tensor:
        state = self._lanes.recurrent[layer_idx][self._rows]
        state.copy_(recurrent_states)
        return state

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._end
