"""How ranks share the network: tensor, pipeline, context and expert parallelism; the rest is data parallel."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch.distributed as dist

from t1core.model import cpu_shim
from t1core.model.shape import ModelShape

GdnContextParallel = Literal["state", "state_scan", "heads", "gather"]


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism. `sequence_parallel` None means: whenever tp > 1. `gdn_cp`: how GatedDeltaNet layers run
    under context parallelism (t1core.model.gated_delta_net)."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool | None = None
    gdn_cp: GdnContextParallel = "state"

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "cp", "ep"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.gdn_cp not in get_args(GdnContextParallel):
            raise ValueError(
                f"gdn_cp={self.gdn_cp!r} is not one of {', '.join(get_args(GdnContextParallel))}"
            )
        if self.sequence_parallel is None:
            object.__setattr__(self, "sequence_parallel", self.tp > 1)
        if self.tp > 1 and not self.sequence_parallel:
            raise ValueError(
                f"tp={self.tp} with sequence_parallel=False: expert layers train only with it on"
            )
        if self.tp == 1 and self.sequence_parallel:
            raise ValueError("sequence_parallel=True has no effect with tp=1: leave it out or raise tp")

    @property
    def row_multiple(self) -> int:
        """Each packed row's length must be a multiple of this (context-parallel zig-zag and sequence
        parallelism).
        """
        return self.tp * (2 * self.cp if self.cp > 1 else 1)

    def check(self, shape: ModelShape, *, world_size: int) -> None:
        """Refuse a layout that this shape or this many ranks cannot carry, naming the field."""
        model_parallel = self.tp * self.pp * self.cp
        if world_size % model_parallel:
            raise ValueError(f"{world_size} ranks are no multiple of tp*pp*cp={model_parallel}")
        if (world_size // self.pp) % self.ep:
            raise ValueError(
                f"ep={self.ep} does not divide the {world_size // self.pp} ranks of a pipeline stage"
            )
        heads, by_heads = (self.tp * self.cp, "tp*cp") if self.gdn_cp == "heads" else (self.tp, "tp")
        for name, degree, by in (
            ("num_layers", self.pp, "pp"),
            ("num_experts", self.ep, "ep"),
            ("vocab_size", self.tp, "tp"),
            ("num_query_groups", self.tp, "tp"),
            ("shared_expert_intermediate_size", self.tp, "tp"),
            ("linear_num_key_heads", heads, by_heads),
            ("linear_num_value_heads", heads, by_heads),
        ):
            if getattr(shape, name) % degree:
                raise ValueError(f"{name}={getattr(shape, name)} is not a multiple of {by}={degree}")


def initialize(layout: Layout, *, seed: int = 0, timeout_s: float = 600.0) -> None:
    """Make Megatron's process groups on top of the default one, which the caller has opened, and seed it."""
    cpu_shim.install()
    from megatron.core import parallel_state, tensor_parallel

    if not dist.is_initialized():
        raise ValueError("torch.distributed is not initialised: call init_process_group first")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tp,
        pipeline_model_parallel_size=layout.pp,
        context_parallel_size=layout.cp,
        expert_model_parallel_size=layout.ep,
        expert_tensor_parallel_size=1,
        distributed_timeout_minutes=timeout_s / 60,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(seed)


def destroy() -> None:
    """Undo `initialize`; the default process group stays."""
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
