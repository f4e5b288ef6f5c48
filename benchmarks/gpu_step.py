"""One PPO step on a GPU: seconds by phase, tokens/s, share of the peak, memory, and the swap of actor and critic.

    python benchmarks/gpu_step.py --size 12-layer --rows 16 --length 2048

bf16 weights, fp32 gradients and optimiser, actor and critic taking turns (`train.offload`). Kernels that compile on
first use are warmed by whole steps before the first timed one; their time stands apart. A swap's speed is beside that
of one copy of the same bytes between pinned memory and the device. The model is random: nothing is learnt.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_model import (
    DATASHEET_FLOPS_PER_S,
    active_params,
    alone,
    forward_flops,
    machine,
    make_batch,
    make_shape,
    matmul_flops_per_s,
    num_params,
    write_random,
)
from t1core.model.shape import ModelShape
from t1core.train import offload
from t1core.train.settings import TrainSettings
from t1core.train.trainer import Trainer

OUTPUT = Path(__file__).resolve().parents[1] / "figures" / "results" / "gpu_step.json"
# Passes of a step, in forwards of the whole batch: a backward is two. Critic forward, which gives V_old at gamma and
# lambda 1, and backward; log-probs of the behaviour snapshot; actor forward and backward.
FORWARDS_A_STEP = 3 + 1 + 3


def measure(
    *, size: str, num_rows: int, length: int, max_tokens: int, num_steps: int, recompute: bool, wanted: str
) -> dict[str, Any]:
    """Everything above, for one model and batch, in this process."""
    shape = make_shape(size)
    alone()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "model"
        write_random(shape, directory)
        trainer = Trainer(
            TrainSettings(
                actor_path=str(directory),
                critic_path=None,
                shape=shape,
                precision="bf16",
                kernels=wanted,
                max_tokens_per_gpu=max_tokens,
                offload=True,
                recompute=recompute,
            )
        )
        began = time.perf_counter()
        trainer.setup()
        print(
            f"{num_params(shape) / 1e9:.2f}B parameters set up in {time.perf_counter() - began:.1f} s",
            flush=True,
        )
        try:
            return {
                "parameters": {
                    "size": size, "num_rows": num_rows, "length": length, "max_tokens_per_gpu": max_tokens,
                    "recompute": recompute, "num_params": num_params(shape), "active_params": active_params(shape),
                },
                "step": _steps(trainer, shape, num_rows=num_rows, length=length, num_steps=num_steps),
                "swap": _swap(trainer),
                "kernels": str(trainer.actor.kernels),
                "machine": machine(),
            }  # fmt: skip
        finally:
            trainer.close()


def _steps(
    trainer: Trainer, shape: ModelShape, *, num_rows: int, length: int, num_steps: int
) -> dict[str, Any]:
    warm, timed, phases = [], [], []
    peaks: list[int] = []
    for step in range(2 + num_steps):
        batch = make_batch(shape, num_rows=num_rows, length=length, seed=step, version=trainer.version)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        result = trainer.train_batch(batch, update_actor=True, expected_version_lag=0)
        torch.cuda.synchronize()
        took = time.perf_counter() - began
        trainer.rotate(trainer.version + 1)
        (warm if step < 2 else timed).append(took)
        if step >= 2:
            phases.append(result.timings_s)
            peaks.append(torch.cuda.max_memory_allocated())
        print(f"{'warm-up' if step < 2 else 'step'} {step + 1}: {took:.2f} s", flush=True)
    median = float(np.median(timed))
    flops = FORWARDS_A_STEP * forward_flops(shape, [length] * num_rows)
    computing = median - np.median([p.get("offload", 0.0) + p.get("reload", 0.0) for p in phases])
    reached = matmul_flops_per_s()
    return {
        "warm_up_s": warm,
        "steps_s": timed,
        "phases_s": {name: float(np.median([p[name] for p in phases])) for name in phases[0]},
        "tokens_per_s": num_rows * length / median,
        "flops_a_step": flops,
        "mfu_of_datasheet": flops / median / DATASHEET_FLOPS_PER_S,
        "mfu_of_datasheet_without_swaps": flops / float(computing) / DATASHEET_FLOPS_PER_S,
        "mfu_of_matmul": flops / median / reached,
        "matmul_flops_per_s": reached,
        "peak_bytes": max(peaks),
        "metrics_finite": all(np.isfinite(v) for k, v in result.metrics.items() if k.startswith("train/")),
    }


def _swap(trainer: Trainer) -> dict[str, Any]:
    """The critic is away and the actor here, as between steps: each move timed with its checksums, then without them,
    then a plain copy of as many bytes."""
    held = torch.cuda.memory_allocated()
    began = time.perf_counter()
    trainer.offload("actor")
    torch.cuda.synchronize()
    out_s, freed = time.perf_counter() - began, held - torch.cuda.memory_allocated()
    began = time.perf_counter()
    trainer.reload("actor")
    torch.cuda.synchronize()
    in_s = time.perf_counter() - began
    away = offload.offload(trainer.actor)
    moved = sum(len(host) for _, host in away.stored)
    began = time.perf_counter()
    for storage, host in away.stored:
        storage.resize_(len(host))
        offload._bytes_of(storage).copy_(host, non_blocking=True)
    torch.cuda.synchronize()
    bare_in_s = time.perf_counter() - began
    began = time.perf_counter()
    for storage, host in away.stored:
        host.copy_(offload._bytes_of(storage), non_blocking=True)
    torch.cuda.synchronize()
    bare_out_s = time.perf_counter() - began
    offload.reload(trainer.actor, away)
    pinned = torch.empty(moved, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(moved, dtype=torch.uint8, device="cuda")
    plain = {}
    for name, (to, source) in {"to_host": (pinned, device), "to_device": (device, pinned)}.items():
        to.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        began = time.perf_counter()
        to.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        plain[name] = moved / (time.perf_counter() - began) / 1e9
    return {
        "moved_bytes": moved,
        "freed_bytes": freed,
        "offload_with_checksum_s": out_s,
        "reload_with_checksum_s": in_s,
        "copies_to_host_gb_per_s": moved / bare_out_s / 1e9,
        "copies_to_device_gb_per_s": moved / bare_in_s / 1e9,
        "plain_pinned_gb_per_s": plain,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="12-layer")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--max-tokens", type=int, default=16_384)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--kernels", default="auto", choices=["auto", "fused", "plain"])
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--output", default=str(OUTPUT), help="'' writes nothing")
    given = parser.parse_args()
    found = measure(
        size=given.size,
        num_rows=given.rows,
        length=given.length,
        max_tokens=given.max_tokens,
        num_steps=given.steps,
        recompute=given.recompute,
        wanted=given.kernels,
    )
    step, swap = found["step"], found["swap"]
    print(
        f"{step['tokens_per_s']:.0f} tokens/s, {step['mfu_of_datasheet']:.1%} of the datasheet's peak, "
        f"{step['peak_bytes'] / 2**30:.2f} GiB at most"
    )
    print(
        f"swap: {swap['moved_bytes'] / 1e9:.2f} GB out in {swap['offload_with_checksum_s']:.2f} s and back in "
        f"{swap['reload_with_checksum_s']:.2f} s with checksums; the copies alone "
        f"{swap['copies_to_host_gb_per_s']:.1f} and {swap['copies_to_device_gb_per_s']:.1f} GB/s, plain pinned "
        f"{swap['plain_pinned_gb_per_s']}"
    )
    if given.output:
        Path(given.output).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
