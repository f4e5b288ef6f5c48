"""Routing replay: the experts of each token are taken from a record, their weights from the live router.

The record chooses, the router still scores: gate weights are the softmax of live scores over the recorded
experts, so the router receives a gradient. Routes are addressed per model (Megatron's own list is one for the
whole process, which an actor and a critic would share). Each layer has two cursors: one for forward passes,
one for the forwards that activation recomputation runs again during backward.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.moe.router_replay import RouterReplay
from torch import nn


class LayerRoutes:
    """What one layer's router asks for its top-k choice; stands where Megatron's RouterReplay stands."""

    def __init__(self, layer: int) -> None:
        self.layer = layer  # counted from 0 over the whole network
        self.mode: Literal["free", "record", "replay"] = "free"
        self.recomputed = False  # the forward pass now running will be run again in backward
        self.forward: deque[torch.Tensor] = deque()
        self.backward: deque[torch.Tensor] = deque()
        self.recorded: list[torch.Tensor] = []

    def clear(self) -> None:
        self.mode = "free"
        self.forward.clear()
        self.backward.clear()
        self.recorded.clear()

    def get_replay_topk(
        self,
        scores: torch.Tensor,
        topk: int,
        num_groups: int | None = None,
        group_topk: int | None = None,
        default_compute_topk: Callable[..., tuple[torch.Tensor, torch.Tensor]] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Megatron's hook: scores [tokens, experts] to (chosen scores, chosen experts), both [tokens, topk].

        Experts ascend in every mode, so that replaying a free choice repeats its arithmetic bit for bit.
        """
        again = self.recomputed and torch.is_grad_enabled()
        if self.mode == "replay":
            chosen = self._next(again)
            assert chosen.shape == (len(scores), topk), (
                f"layer {self.layer}: routes {tuple(chosen.shape)} for {len(scores)} tokens, top {topk}"
            )
        else:
            assert default_compute_topk is not None
            _, chosen = default_compute_topk(
                scores.detach(), topk, num_groups=num_groups, group_topk=group_topk
            )
            chosen = chosen.sort(dim=-1).values
            if self.mode == "record" and not again:
                self.recorded.append(chosen)
        return scores.gather(1, chosen), chosen

    def _next(self, again: bool) -> torch.Tensor:
        queue = self.backward if again else self.forward
        assert queue, (
            f"layer {self.layer}: a forward pass without routes; arm the model before each, or disarm it"
        )
        routes = queue.popleft()
        if self.recomputed and not again:
            self.backward.append(routes)
        return routes.long()


def attach(model: nn.Module) -> None:
    """Put our cursors into a freshly built model's routers; `build_model` does this."""
    for router in _routers(model):
        RouterReplay.global_router_replay_instances.remove(router.router_replay)
        router.router_replay = LayerRoutes(router.layer_number - 1)

    def note_recomputation(module: nn.Module, _: Any) -> None:
        again = (
            module.config.recompute_granularity is not None and module.training and torch.is_grad_enabled()
        )
        for layer in _layers(module):
            layer.recomputed = again

    model.register_forward_pre_hook(note_recomputation)


def arm(model: nn.Module, routes: torch.Tensor) -> None:
    """Give the next forward pass its routes: [tokens, layers, k], ids ascending within k, one row for each
    token of this rank's packed row as the model is given it, pads included, all layers of the network. Any
    integer type: they are kept as they are, and widened layer by layer when used.

    Under sequence parallelism each rank keeps the slice that its routers see. Call it once before each micro-
    batch's forward. Raises ValueError where ids or layers do not fit the model.
    """
    config = model.config
    if routes.dim() != 3 or routes.shape[1:] != (config.num_layers, config.moe_router_topk):
        raise ValueError(
            f"routes have shape {tuple(routes.shape)}, "
            f"expected [tokens, {config.num_layers}, {config.moe_router_topk}]"
        )
    # int32 for the comparison alone: torch has no minimum of uint16
    if routes.numel() and not all(0 <= int(x) < config.num_moe_experts for x in routes.int().aminmax()):
        raise ValueError(f"routes name experts outside 0..{config.num_moe_experts - 1}")
    if config.sequence_parallel:
        tp = parallel_state.get_tensor_model_parallel_world_size()
        assert len(routes) % tp == 0, f"{len(routes)} tokens cannot be split over tp={tp}"
        routes = routes.chunk(tp)[parallel_state.get_tensor_model_parallel_rank()]
    for layer in _layers(model):
        layer.mode = "replay"
        layer.forward.append(routes[:, layer.layer])


def disarm(model: nn.Module) -> None:
    """Route freely again and forget all routes, consumed or not, and all recordings."""
    for layer in _layers(model):
        layer.clear()


def assert_consumed(model: nn.Module) -> None:
    """Every route given to `arm` was used, by the forward pass and, under recomputation, by its backward."""
    for layer in _layers(model):
        left = len(layer.forward), len(layer.backward)
        assert left == (0, 0), (
            f"layer {layer.layer}: {left[0]} forward and {left[1]} backward routes were not consumed"
        )


def assert_idle(model: nn.Module) -> None:
    """No routes wait for a pass: a pass that begins now can neither use up nor overtake another one's."""
    for router in _routers(model):
        layer = router.router_replay
        waiting = isinstance(layer, LayerRoutes) and (layer.forward or layer.backward)
        assert not waiting, f"layer {layer.layer}: routes of an earlier pass were not consumed"


def record(model: nn.Module) -> None:
    """Route freely and keep every choice from now on."""
    for layer in _layers(model):
        layer.clear()
        layer.mode = "record"


def recorded(model: nn.Module) -> torch.Tensor:
    """The choices since `record`, int64 [tokens, layers of this pipeline stage, k], tokens in the order
    they were given.
    """
    layers = [_whole(layer.recorded, model.config.sequence_parallel) for layer in _layers(model)]
    return torch.stack(layers, dim=1)


def layer_numbers(model: nn.Module) -> list[int]:
    """The layers of this pipeline stage, counted from 0 over the whole network, in the order of `recorded`."""
    return [layer.layer for layer in _layers(model)]


def _whole(passes: list[torch.Tensor], split: bool) -> torch.Tensor:
    assert passes, "nothing was recorded: call record, then run the model"
    if split:
        group = parallel_state.get_tensor_model_parallel_group()
        passes = [gather_from_sequence_parallel_region(x.contiguous(), group=group) for x in passes]
    return torch.cat(passes)


def _routers(model: nn.Module) -> Iterator[TopKRouter]:
    return (module for module in model.modules() if isinstance(module, TopKRouter))


def _layers(model: nn.Module) -> list[LayerRoutes]:
    layers = [router.router_replay for router in _routers(model)]
    if not all(isinstance(layer, LayerRoutes) for layer in layers):
        raise ValueError(
            "this model was built without routing_replay=True: its routes can be neither armed nor recorded"
        )
    return layers
