"""Where a train step's time goes on a GPU: every lost point of the peak, by the class of kernel that took it.

    python -m benchmarks.gpu_profile --size 1b --rows 1 --length 32768 --kernels fused

One actor update (log-probs, loss, gradients, Adam) under torch's profiler, after two that warm it. The share of the
peak that is missing is told as: what matrix products take beyond the time they would need at the peak, what each
other class of kernel takes, and the gaps in which the device waits for its next kernel. The parts add up to the step.
"""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_model import (
    DATASHEET_FLOPS_PER_S,
    alone,
    forward_flops,
    machine,
    make_batch,
    make_shape,
    write_random,
)
from t1core.train.settings import TrainSettings
from t1core.train.trainer import Trainer

CLASSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("attention", ("flash", "fmha", "attention")),
    ("delta rule", ("delta_rule", "chunk_fwd", "chunk_bwd", "wy_repr", "w_u_fwd", "kkt", "cumsum", "gdn_gate",
                    "beta_sigmoid", "trsm")),
    ("convolution", ("conv1d",)),
    ("norms", ("_norm_kernel", "_norm_gradient", "rms_norm", "layer_norm")),
    ("SwiGLU", ("swiglu",)),
    ("scoring", ("_score_kernel", "_score_gradient", "softmax")),
    ("matrix products", ("gemm", "cutlass", "nvjet", "cublas", "matmul", "sm90_xmma", "splitk")),
    ("sorting and gathering", ("sort", "gather", "scatter", "index", "radix", "scan", "topk", "bitonic")),
    ("optimiser", ("multi_tensor", "adam", "foreach")),
    ("copies", ("memcpy", "memset", "copy", "cat")),
    ("reductions", ("reduce",)),
    ("elementwise", ("elementwise", "vectorized", "unrolled", "fill")),
)  # fmt: skip
"""A kernel belongs to the first class of which some part is in its name."""


def class_of(kernel: str) -> str:
    """The class of a kernel by its name; `other` for one that fits none."""
    name = kernel.lower()
    return next((what for what, parts in CLASSES if any(part in name for part in parts)), "other")


def busy_and_gaps(spans: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """(time in which some kernel runs, time between the first and the last in which none does), of (start, end)."""
    busy = gaps = 0.0
    until: float | None = None
    for start, end in sorted(spans):
        if until is None or start > until:
            gaps += 0.0 if until is None else start - until
            busy += end - start
            until = end
        elif end > until:
            busy += end - until
            until = end
    return busy, gaps


def explain(
    kernels: Sequence[tuple[str, float, float]], *, wall_s: float, flops: float, peak_flops_per_s: float
) -> dict[str, Any]:
    """kernels: (name, start, end) in seconds. Points of the peak that each part of the step costs."""
    seconds: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for name, start, end in kernels:
        seconds[class_of(name)] += end - start
        counts[class_of(name)] += 1
    busy, _ = busy_and_gaps((start, end) for _, start, end in kernels)
    ideal = flops / peak_flops_per_s
    products = seconds["matrix products"] + seconds["attention"]
    lost = {"matrix products and attention beyond their time at the peak": products - ideal}
    lost |= {name: s for name, s in seconds.items() if name not in ("matrix products", "attention")}
    lost["device idle"] = wall_s - busy
    # Kernels that run beside one another are counted twice above.
    lost["counted twice"] = busy - sum(seconds.values())
    return {
        "wall_s": wall_s,
        "ideal_s": ideal,
        "share_of_peak": ideal / wall_s,
        "busy_s": busy,
        "num_kernels": len(kernels),
        "seconds_by_class": dict(seconds),
        "kernels_by_class": dict(counts),
        "lost_share_of_step": {name: s / wall_s for name, s in sorted(lost.items(), key=lambda x: -x[1])},
    }


def profiled(
    work: Callable[[], Any], *, top: int = 40
) -> tuple[list[tuple[str, float, float]], float, list[Any]]:
    """(kernels as `explain` takes them, wall seconds without the profiler, the longest kernels by name)."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    wall = time.perf_counter() - began
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    kernels = [
        (event.name, event.time_range.start / 1e6, event.time_range.end / 1e6)
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for name, start, end in kernels:
        totals[name][0] += end - start
        totals[name][1] += 1
    longest = sorted(((name[:120], *total) for name, total in totals.items()), key=lambda x: -x[1])[:top]
    return kernels, wall, longest


def measure(
    *, size: str, num_rows: int, length: int, max_tokens: int, wanted: str, recompute: bool, num_warm: int = 2
) -> dict[str, Any]:
    """Everything above, for one model and batch, in this process."""
    shape = make_shape(size)
    alone()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "model"
        write_random(shape, directory)
        trainer = Trainer(
            TrainSettings(
                actor_path=str(directory), critic_path=None, shape=shape, precision="bf16", kernels=wanted,
                max_tokens_per_gpu=max_tokens, recompute=recompute, advantage="grpo",
            )
        )  # fmt: skip
        trainer.setup()
        try:
            batch = make_batch(shape, num_rows=num_rows, length=length, seed=0, version=0)
            streams = trainer._put(batch, with_routes=True)

            def step() -> None:
                update(trainer, streams)

            warm = []
            for _ in range(num_warm):
                began = time.perf_counter()
                step()
                torch.cuda.synchronize()
                warm.append(time.perf_counter() - began)
                print(f"warm-up {warm[-1]:.2f} s", flush=True)
            torch.cuda.reset_peak_memory_stats()
            kernels, wall, longest = profiled(step)
            flops = 3 * forward_flops(shape, [length] * num_rows)
            found = explain(kernels, wall_s=wall, flops=flops, peak_flops_per_s=DATASHEET_FLOPS_PER_S)
            return {
                "parameters": {
                    "size": size, "num_rows": num_rows, "length": length, "max_tokens_per_gpu": max_tokens,
                    "recompute": recompute,
                },
                "kernels": str(trainer.actor.kernels),
                "warm_up_s": warm,
                "tokens_per_s": num_rows * length / wall,
                "peak_bytes": torch.cuda.max_memory_allocated(),
                "step": found,
                "longest": longest,
                "machine": machine(),
            }  # fmt: skip
        finally:
            trainer.close()


def update(trainer: Trainer, streams: Any, *, replayed: bool = True) -> None:
    """One update of the actor on the log-probs of all loss tokens, with the experts as recorded."""
    from t1core.model.scoring import score

    actor = trainer.actor
    mask = streams.mask
    count = mask.sum()

    def loss(out: torch.Tensor, micro: Any) -> tuple[torch.Tensor, None]:
        logprobs, _ = score(out, micro.targets, model=actor.model)
        return -torch.where(micro.take(mask), logprobs, 0.0).sum() / count, None

    actor.accumulate(streams.micro_batches, loss, replayed=replayed)
    actor.step()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="1b")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--length", type=int, default=32_768)
    parser.add_argument("--max-tokens", type=int, default=32_768)
    parser.add_argument("--kernels", default="auto", choices=["auto", "fused", "plain"])
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--output", required=True)
    given = parser.parse_args()
    found = measure(
        size=given.size, num_rows=given.rows, length=given.length, max_tokens=given.max_tokens,
        wanted=given.kernels, recompute=given.recompute,
    )  # fmt: skip
    Path(given.output).write_text(json.dumps(found, indent=2) + "\n")
    step = found["step"]
    print(
        f"{found['kernels']}: {found['tokens_per_s']:.0f} tokens/s, {step['wall_s']:.3f} s a step, "
        f"{step['share_of_peak']:.1%} of the datasheet's peak, {found['peak_bytes'] / 2**30:.1f} GiB"
    )
    for name, share in step["lost_share_of_step"].items():
        print(f"  {share:7.2%}  {name}")


if __name__ == "__main__":
    main()
