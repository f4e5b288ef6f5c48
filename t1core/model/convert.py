"""Weights between Hugging Face and Megatron: whole states, a rank's slice, and export to one rank.

Conversion only rearranges, so both directions round-trip bit for bit. `weights.table` says what goes where.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import nn

from t1core.model.checkpoint import HfDirectory, init_hf
from t1core.model.shape import ModelShape
from t1core.model.weights import Weight, matching, table

__all__ = ["export_hf", "freeze", "hf_to_megatron", "init_hf", "load_hf", "megatron_to_hf"]


def hf_to_megatron(state: Mapping[str, torch.Tensor], shape: ModelShape) -> dict[str, torch.Tensor]:
    """A whole Hugging Face state to Megatron's names and layouts, unsharded."""
    return {
        weight.megatron: weight.pack([_take(state, name) for name in weight.hf])
        for weight in table(shape, role="critic" if "value_head.weight" in state else "actor")
    }


def megatron_to_hf(state: Mapping[str, torch.Tensor], shape: ModelShape) -> dict[str, torch.Tensor]:
    """The inverse of `hf_to_megatron`; keys that are no weights (Megatron's extra states) are passed over."""
    role = "critic" if "output_layer.bias" in state else "actor"
    converted: dict[str, torch.Tensor] = {}
    for weight in table(shape, role=role):
        converted.update(zip(weight.hf, weight.unpack(_take(state, weight.megatron)), strict=True))
    return converted


def load_hf(model: nn.Module, source: str | Path | Mapping[str, torch.Tensor], shape: ModelShape) -> None:
    """Copy a checkpoint directory, or a state with Hugging Face names, into this rank's part of the model.

    Files are read tensor by tensor and only this rank's slice is kept. A critic takes its value head where
    the source has one; where it has none (an actor's checkpoint), the head is set to zero. Raises ValueError
    for a missing tensor or a size that does not fit.
    """
    state = source if isinstance(source, Mapping) else HfDirectory(source)
    own = dict(model.named_parameters())
    for weight in table(shape, role=model.role):
        stage, name = _place(weight, shape)
        if stage != parallel_state.get_pipeline_model_parallel_rank():
            continue
        param = own[name]
        if weight.hf[0].startswith("value_head.") and weight.hf[0] not in state:
            _fill(param, torch.zeros_like(param))
            continue
        whole = weight.pack([_take(state, part) for part in weight.hf])
        group = _group(weight)
        shard = weight.shard(whole, rank=dist.get_rank(group), size=dist.get_world_size(group))
        if shard.shape != param.shape:
            raise ValueError(
                f"{weight.hf[0]}: the source gives {tuple(shard.shape)}, the model has {tuple(param.shape)}; "
                "is the shape from the same config.json?"
            )
        _fill(param, shard)


def freeze(model: nn.Module, shape: ModelShape, *, patterns: Sequence[str]) -> None:
    """Take the weights that `weights.matching` finds out of training, before the model gets an optimiser."""
    own = dict(model.named_parameters())
    for weight in matching(patterns, shape=shape, role=model.role):
        stage, name = _place(weight, shape)
        if stage == parallel_state.get_pipeline_model_parallel_rank():
            own[name].requires_grad_(False)


@torch.no_grad()
def export_hf(model: nn.Module, shape: ModelShape) -> dict[str, torch.Tensor]:
    """The whole model with Hugging Face names, on the CPU of global rank 0; an empty dict on the other ranks.

    Every rank must call it. A critic's export ends in value_head.weight [outputs, hidden] and value_head.bias
    [outputs] instead of lm_head.
    """
    own = dict(model.named_parameters())
    state: dict[str, torch.Tensor] = {}
    for weight in table(shape, role=model.role):
        whole = _gather(weight, own, shape)
        if dist.get_rank() == 0:
            assert whole is not None
            parts = zip(weight.hf, weight.unpack(whole), strict=True)
            state.update(
                {name: part.cpu().clone(memory_format=torch.contiguous_format) for name, part in parts}
            )
    return state


def _place(weight: Weight, shape: ModelShape) -> tuple[int, str]:
    """(pipeline stage, name on that stage) of a weight."""
    stages = parallel_state.get_pipeline_model_parallel_world_size()
    if weight.layer is None:
        return stages - 1, weight.megatron
    if weight.layer < 0:
        return 0, weight.megatron
    depth = shape.num_layers // stages
    stage, local = divmod(weight.layer, depth)
    return stage, weight.megatron.replace(f".layers.{weight.layer}.", f".layers.{local}.", 1)


def _group(weight: Weight) -> dist.ProcessGroup:
    """The ranks that divide this weight."""
    if weight.split == "experts":
        return parallel_state.get_expert_model_parallel_group()
    return parallel_state.get_tensor_model_parallel_group()


def _gather(weight: Weight, own: Mapping[str, torch.Tensor], shape: ModelShape) -> torch.Tensor | None:
    """The whole tensor, on the first pipeline stage; the other stages may get None."""
    stage, name = _place(weight, shape)
    whole = None
    if stage == parallel_state.get_pipeline_model_parallel_rank():
        group, shard = _group(weight), own[name].detach().contiguous()
        shards = [shard]
        if weight.split is not None and dist.get_world_size(group) > 1:
            shards = [torch.empty_like(shard) for _ in range(dist.get_world_size(group))]
            dist.all_gather(shards, shard, group=group)
        whole = weight.join(shards)
    return whole if stage == 0 else _send_to_first_stage(whole, stage)


def _send_to_first_stage(whole: torch.Tensor | None, stage: int) -> torch.Tensor | None:
    group = parallel_state.get_pipeline_model_parallel_group()
    rank = dist.get_rank(group)
    if rank == stage:
        assert whole is not None
        dist.send_object_list([tuple(whole.shape), whole.dtype], group=group, group_dst=0)
        dist.send(whole.contiguous(), group=group, group_dst=0)
    elif rank == 0:
        received: list = [None, None]
        dist.recv_object_list(received, group=group, group_src=stage)
        size, dtype = received
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        whole = torch.empty(size, dtype=dtype, device=device)
        dist.recv(whole, group=group, group_src=stage)
    return whole


def _take(state: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in state:
        raise ValueError(f"the source has no tensor {name!r}; is it a Qwen3.5-MoE checkpoint of this shape?")
    return state[name]


def _fill(param: nn.Parameter, value: torch.Tensor) -> None:
    with torch.no_grad():
        param.copy_(value)
