"""How the recurrent state of a row gets from one context-parallel rank to the next, and its gradient back.

Two schedules. `Sequential`: a rank waits for the state, scans its slice and sends the state on. Bit for bit what one
rank computes, but the scans come one after the other; only the work within chunks, before and after, is done by all
ranks at once. `Scan`: a slice is an affine map of the state that enters it, S -> M S + B. Each rank computes its own
at once, all ranks gather the maps, and each composes those before it: no waiting, but the scan is made twice
(with key_dim more columns the first time), and states agree with one rank's up to reassociation. Backward likewise: the
gradient that leaves a slice to the left is M^T G + c for the gradient G that enters from the right.
"""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.distributed as dist

from t1core.model.context_slices import ContextSlice, exchange

State = Callable[[], torch.Tensor]
"""Gives a state, [heads..., key_dim, value_dim] in fp32, or a map or a gradient of one, when it is wanted."""


class Handover(Protocol):
    """Where a slice's first state comes from and its last one goes; one for each pass through a layer."""

    def arrive(self, own_map: State) -> torch.Tensor | None:
        """The state in which the first row starts; None: it starts here, from zero. own_map gives [M | B]."""

    def depart(self, state: State) -> None:
        """Take the state in which the last row ends, if the row goes on elsewhere."""

    def arrive_back(self, own_gradient: State) -> torch.Tensor | None:
        """The gradient of the state that departed; None: none did. own_gradient gives c."""

    def depart_back(self, gradient: State) -> None:
        """Take the gradient of the state that arrived, if one did."""

    def settle(self) -> None:
        """Wait until what departed has been taken; until then other work may go on beside it."""


class Sequential:
    """Slice after slice; exact."""

    def __init__(self, own: ContextSlice, group: dist.ProcessGroup, *, shape: tuple[int, ...]) -> None:
        """shape: of a state, [heads..., key_dim, value_dim]."""
        self.own, self.group, self.shape = own, group, shape
        self.leaving: list[tuple[dist.Work, torch.Tensor]] = []

    def arrive(self, own_map: State) -> torch.Tensor | None:
        return self._receive(self.own.before)

    def depart(self, state: State) -> None:
        self._send(state, self.own.after)

    def arrive_back(self, own_gradient: State) -> torch.Tensor | None:
        return self._receive(self.own.after)

    def depart_back(self, gradient: State) -> None:
        self._send(gradient, self.own.before)

    def settle(self) -> None:
        for work, _ in self.leaving:
            work.wait()
        self.leaving.clear()

    def _receive(self, source: int | None) -> torch.Tensor | None:
        if source is None:
            return None
        state = torch.empty(self.shape, device=self.own.order.device)
        for work in exchange(self.group, receive=state, source=source):
            work.wait()
        return state

    def _send(self, state: State, to: int | None) -> None:
        if to is not None:
            leaving = state().contiguous()
            self.leaving += [(work, leaving) for work in exchange(self.group, send=leaving, to=to)]


class Scan:
    """All slices at once; exact up to reassociation."""

    def __init__(self, own: ContextSlice, group: dist.ProcessGroup, *, shape: tuple[int, ...]) -> None:
        """shape: of a state, [heads..., key_dim, value_dim]."""
        self.own, self.group, self.shape = own, group, shape
        self.maps: list[torch.Tensor] = []

    def arrive(self, own_map: State) -> torch.Tensor | None:
        if not self.own.is_any_cut:
            return None
        *heads, key_dim, value_dim = self.shape
        device = self.own.order.device
        through = torch.zeros(*heads, key_dim, key_dim + value_dim, device=device)
        if not self.own.rows.lengths:
            through[..., :key_dim] = torch.eye(key_dim, device=device)
        elif self.own.after is not None:
            through = own_map()
            if not self.own.is_one_piece:
                through[..., :key_dim] = 0
        gathered = self._gather(through)
        self.maps = [each[..., :key_dim] for each in gathered]
        state = torch.zeros(self.shape, device=device)
        for each in gathered[: self.group.rank()]:
            state = each[..., :key_dim] @ state + each[..., key_dim:]
        return state if self.own.before is not None else None

    def depart(self, state: State) -> None: ...

    def arrive_back(self, own_gradient: State) -> torch.Tensor | None:
        if not self.own.is_any_cut:
            return None
        none = torch.zeros(self.shape, device=self.own.order.device)
        gathered = self._gather(own_gradient() if self.own.before is not None else none)
        gradient = none
        for rank in range(self.group.size() - 1, self.group.rank(), -1):
            gradient = self.maps[rank].transpose(-1, -2) @ gradient + gathered[rank]
        return gradient if self.own.after is not None else None

    def depart_back(self, gradient: State) -> None: ...

    def settle(self) -> None: ...

    def _gather(self, own: torch.Tensor) -> list[torch.Tensor]:
        everyone = [
            torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(self.group.size())
        ]
        dist.all_gather(everyone, own.contiguous(), group=self.group)
        return everyone
