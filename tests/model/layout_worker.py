"""One rank of a small training run, started by test_model_layouts: two optimiser steps, then export from rank 0.

Before them, log-probabilities and what each layer hands on, at the weights as loaded.

Run as: python layout_worker.py JSON, with RANK and WORLD_SIZE in the environment.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from packed_text import PackedText, random_text
from partial_sums import round_as_two_ranks
from safetensors.torch import save_file

from t1core.model import convert, cpu_shim, delta_rule, forward, replay, scoring_block
from t1core.model.build import build_model
from t1core.model.layout import Layout, initialize
from t1core.model.packed_rows import zigzag
from t1core.model.scoring import score
from t1core.model.shape import ModelShape

MICRO_BATCHES = [[24, 40], [64, 8], [16, 16, 32], [48, 24]]
STEPS = 2


def main(job: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    cpu_shim.install()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{job['store']}", rank=rank, world_size=world)
    layout = Layout(**job["layout"])
    initialize(layout, seed=7, timeout_s=60)
    delta_rule.CHUNK = job.get("chunk", delta_rule.CHUNK)
    scoring_block.LOGITS = job.get("logits_a_block", scoring_block.LOGITS)
    shape = ModelShape.from_hf(job["checkpoint"])
    dtype = torch.bfloat16 if job.get("bf16") else torch.float32
    model = build_model(
        shape,
        role=job["role"],
        layout=layout,
        dtype=dtype,
        routing_replay=job["replay"],
        recompute=job.get("recompute", False),
    )
    convert.load_hf(model, job["checkpoint"], shape)
    if job.get("partial_sums"):
        round_as_two_ranks(model, shape)
    before = observe(model, layout, job) if job.get("observed") else {}
    losses, norms = train(model, layout, job)
    state = convert.export_hf(model, shape)
    if dist.get_rank() == 0:
        out = Path(job["out"])
        save_file(state, out / "model.safetensors")
        save_file(before, out / "before.safetensors")
        (out / "result.json").write_text(json.dumps({"losses": losses, "grad_norms": norms}))
    dist.barrier()
    dist.destroy_process_group()


def train(model: Any, layout: Layout, job: dict[str, Any]) -> tuple[list[float], list[float]]:
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func

    config = model.config
    wrapped = DistributedDataParallel(
        config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True), model
    )
    optimizer = get_megatron_optimizer(
        # A large epsilon keeps the update smooth in the gradient, so that differences mean something.
        OptimizerConfig(
            optimizer="adam",
            lr=1e-3,
            weight_decay=0.01,
            adam_eps=1e-2,
            clip_grad=1.0,
            bf16=bool(job.get("bf16")),
            params_dtype=config.params_dtype,
            use_distributed_optimizer=True,
        ),
        [wrapped],
    )
    config.finalize_model_grads_func = finalize_model_grads
    dp = parallel_state.get_data_parallel_world_size()
    mine = MICRO_BATCHES[parallel_state.get_data_parallel_rank() :: dp]
    total = sum(map(sum, MICRO_BATCHES))

    def batches() -> Iterator[tuple[PackedText, torch.Tensor]]:
        for lengths in mine:
            text = random_text(lengths, seed=sum(lengths) + len(lengths))
            held = zigzag(text.cu_seqlens, layout.cp)[parallel_state.get_context_parallel_rank()]
            yield text, held

    def step(iterator: Iterator[tuple[PackedText, torch.Tensor]], module: Any) -> tuple[torch.Tensor, Any]:
        text, held = next(iterator)
        if job["replay"]:
            replay.arm(model, routes(text, model)[held])
        out = forward.outputs(
            module, text.tokens[held], text.positions[held], forward.packed(text.cu_seqlens)
        )

        def loss(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            if job["role"] == "actor":
                each = -score(output, text.targets[held], model=model)[0]
            else:
                each = (output.squeeze(-1).float() - text.targets[held] / 256) ** 2
            share = each.sum() / total
            # Megatron scales by cp / micro-batches, in place, and averages gradients over dp * cp.
            return share * dp * len(mine), {"loss": share.detach().clone()}

        return out, loss

    losses, norms = [], []
    for _ in range(STEPS):
        wrapped.zero_grad_buffer()
        optimizer.zero_grad()
        results = get_forward_backward_func()(
            forward_step_func=step,
            data_iterator=batches(),
            model=[wrapped],
            num_microbatches=len(mine),
            seq_length=max(map(sum, mine)),
            micro_batch_size=1,
            forward_only=False,
        )
        if job["replay"]:
            replay.assert_consumed(model)
        _, norm, _ = optimizer.step()
        loss = torch.tensor(sum((float(result["loss"]) for result in results), 0.0))
        dist.all_reduce(loss, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
        dist.all_reduce(loss, group=parallel_state.get_pipeline_model_parallel_group())
        losses.append(float(loss))
        norms.append(float(norm))
    return losses, norms


@torch.no_grad()
def observe(model: Any, layout: Layout, job: dict[str, Any]) -> dict[str, torch.Tensor]:
    """fp32 log-probabilities [T] and each layer's output [T, hidden] over all micro-batches; pp = cp = 1."""
    seen: dict[str, list[torch.Tensor]] = {}
    hooks = [
        layer.register_forward_hook(
            lambda _, __, out, name=f"layer.{i}": seen.setdefault(name, []).append(_whole(out[0], layout))
        )
        for i, layer in enumerate(model.decoder.layers)
    ]
    for lengths in MICRO_BATCHES:
        text = random_text(lengths, seed=sum(lengths) + len(lengths))
        if job["replay"]:
            replay.arm(model, routes(text, model))
        out = forward.outputs(model, text.tokens, text.positions, forward.packed(text.cu_seqlens))
        seen.setdefault("logprobs", []).append(score(out, text.targets, model=model)[0])
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(parts).float() for name, parts in seen.items()}


def _whole(x: torch.Tensor, layout: Layout) -> torch.Tensor:
    """[tokens of this rank, 1, hidden] to all tokens, [T, hidden]."""
    x = x.squeeze(1).contiguous()
    if layout.tp == 1:
        return x
    shards = [torch.empty_like(x) for _ in range(layout.tp)]
    dist.all_gather(shards, x)
    return torch.cat(shards)


def routes(text: PackedText, model: Any) -> torch.Tensor:
    """A fixed random choice of experts for every token of these rows, ids ascending."""
    config = model.config
    generator = torch.Generator().manual_seed(len(text.tokens))
    scores = torch.rand(len(text.tokens), config.num_layers, config.num_moe_experts, generator=generator)
    return scores.topk(config.moe_router_topk).indices.sort(-1).values


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    main(json.loads(sys.argv[1]))
