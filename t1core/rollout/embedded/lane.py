"""Lanes: the state of the live requests as batch tensors, lane b being row b of each.

Live lanes are always rows 0..n-1, so a decode step works on views of the front rows and nothing is gathered.
A finished request is copied out to a `LaneState` and the last live lane moves into its place.
"""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class ModelShape:
    """What the state of one token or one sequence measures, per kind of layer."""

    num_layers: int
    top_k: int
    num_experts: int
    vocab_size: int
    attention_layers: tuple[int, ...]
    gdn_layers: tuple[int, ...]
    num_kv_heads: int
    head_dim: int
    conv_dim: int
    conv_kernel: int
    num_v_heads: int
    k_head_dim: int
    v_head_dim: int

    @property
    def route_dtype(self) -> np.dtype:
        return np.dtype(np.uint8 if self.num_experts <= 256 else np.int32)


@dataclass(frozen=True)
class LaneState:
    """Everything known after forwarding `ids` (int32 [n]) under `version`, copied out of the batch.

    kv: per attention layer (keys, values), each [n, kv heads, head dim]. gdn: per GatedDeltaNet layer
    (conv state [conv dim, kernel], recurrent state float32 [v heads, k dim, v dim]). routes: [n, L, k].
    """

    version: int
    ids: np.ndarray
    routes: np.ndarray
    kv: dict[int, tuple[torch.Tensor, torch.Tensor]]
    gdn: dict[int, tuple[torch.Tensor, torch.Tensor]]

    def is_strict_prefix_of(self, ids: np.ndarray) -> bool:
        """True when `ids` extends what was forwarded by at least one token (a recurrent state can't be rolled
        back).
        """
        return len(self.ids) < len(ids) and np.array_equal(self.ids, ids[: len(self.ids)])


class Lanes:
    """Batch state for up to `num_lanes` live requests; the token axis doubles as needed, up to `max_context`.

    `length[b]` tokens of lane b have been forwarded; `ids[b, length[b]]` is the sampled token that is
    forwarded next. `logprobs` and `versions` are indexed by the sampled token's own position.
    """

    def __init__(self, shape: ModelShape, *, num_lanes: int, max_context: int, dtype: torch.dtype) -> None:
        self.shape, self.num_lanes, self.max_context = shape, num_lanes, max_context
        self.capacity = 0
        self.length = np.zeros(num_lanes, dtype=np.int64)
        self.ids = np.zeros((num_lanes, 0), dtype=np.int32)
        self.logprobs = np.zeros((num_lanes, 0), dtype=np.float32)
        self.versions = np.zeros((num_lanes, 0), dtype=np.int32)
        self.routes = np.zeros((num_lanes, 0, shape.num_layers, shape.top_k), dtype=shape.route_dtype)
        kv = (num_lanes, 0, shape.num_kv_heads, shape.head_dim)
        self.keys = {layer: torch.zeros(kv, dtype=dtype) for layer in shape.attention_layers}
        self.values = {layer: torch.zeros(kv, dtype=dtype) for layer in shape.attention_layers}
        conv = (num_lanes, shape.conv_dim, shape.conv_kernel)
        self.conv = {layer: torch.zeros(conv, dtype=dtype) for layer in shape.gdn_layers}
        recurrent = (num_lanes, shape.num_v_heads, shape.k_head_dim, shape.v_head_dim)
        self.recurrent = {layer: torch.zeros(recurrent, dtype=torch.float32) for layer in shape.gdn_layers}

    def reserve(self, num_tokens: int) -> None:
        """Make room for `num_tokens` tokens a lane."""
        assert num_tokens <= self.max_context, (
            f"{num_tokens} tokens reserved in a context of {self.max_context}"
        )
        if num_tokens <= self.capacity:
            return
        capacity = min(self.max_context, max(256, 1 << (num_tokens - 1).bit_length()))

        def grown(old: np.ndarray) -> np.ndarray:
            new = np.zeros((self.num_lanes, capacity, *old.shape[2:]), dtype=old.dtype)
            new[:, : self.capacity] = old
            return new

        def grown_tensor(old: torch.Tensor) -> torch.Tensor:
            # zeros, not empty: masked positions still multiply by a zero probability, and 0 * NaN is NaN
            new = torch.zeros((self.num_lanes, capacity, *old.shape[2:]), dtype=old.dtype)
            new[:, : self.capacity] = old
            return new

        self.ids, self.logprobs, self.versions = grown(self.ids), grown(self.logprobs), grown(self.versions)
        self.routes = grown(self.routes)
        self.keys = {layer: grown_tensor(old) for layer, old in self.keys.items()}
        self.values = {layer: grown_tensor(old) for layer, old in self.values.items()}
        self.capacity = capacity

    def start(self, lane: int, ids: np.ndarray, *, state: LaneState | None, room: int) -> None:
        """Put a prompt into a lane, with the state of the part of it that was forwarded before, or none."""
        self.reserve(room)
        self.ids[lane, : len(ids)] = ids
        cached = 0 if state is None else len(state.ids)
        self.length[lane] = cached
        for layer in self.shape.gdn_layers:
            conv, recurrent = (0, 0) if state is None else state.gdn[layer]
            self.conv[layer][lane] = conv
            self.recurrent[layer][lane] = recurrent
        if state is None:
            return
        self.routes[lane, :cached] = state.routes
        for layer in self.shape.attention_layers:
            self.keys[layer][lane, :cached], self.values[layer][lane, :cached] = state.kv[layer]

    def copy_out(self, lane: int, *, version: int) -> LaneState:
        """The lane's state, in memory of its own."""
        n = int(self.length[lane])
        return LaneState(
            version=version,
            ids=self.ids[lane, :n].copy(),
            routes=self.routes[lane, :n].copy(),
            kv={
                layer: (self.keys[layer][lane, :n].clone(), self.values[layer][lane, :n].clone())
                for layer in self.shape.attention_layers
            },
            gdn={
                layer: (self.conv[layer][lane].clone(), self.recurrent[layer][lane].clone())
                for layer in self.shape.gdn_layers
            },
        )

    def move(self, source: int, *, to: int) -> None:
        """Overwrite lane `to` by lane `source`."""
        n = int(self.length[source]) + 1
        self.length[to] = self.length[source]
        for array in (self.ids, self.logprobs, self.versions, self.routes):
            array[to, :n] = array[source, :n]
        for tensors in (self.keys, self.values):
            for tensor in tensors.values():
                tensor[to, : n - 1] = tensor[source, : n - 1]
        for tensors in (self.conv, self.recurrent):
            for tensor in tensors.values():
                tensor[to] = tensor[source]
