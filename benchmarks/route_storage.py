"""What a routing record costs: bytes a token in each form, and the speed of each step from capture to replay.

    python -m benchmarks.route_storage [--tokens 33000] [--layers 48] [--experts 256] [--keep]

Eight of at most 256 experts serve a token. Sets are drawn at random, all equally likely, which is the hardest case for
a compressor. Times are CPU seconds of one thread, the best of several runs; GB/s counts the bytes of the plain uint8
record, whatever form is read or written.
"""

import math
import tempfile
import time
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.kept import Comparison, command_line, finish
from t1core.records import Batch
from t1core.routing import RoutePiece, canonical, compact, stitch, validate
from t1core.store.packed_routes import TOPK, pack, unpack
from t1core.store.tensors import read_tensors, write_tensors
from t1core.train.packing import pack_rows


def random_routes(num_tokens: int, *, layers: int, experts: int, seed: int = 0) -> np.ndarray:
    """uint8 [num_tokens, layers, 8]: every set of 8 is equally likely; ids ascend."""
    draw = np.random.default_rng(seed)
    sets = np.sort(draw.integers(0, experts, (num_tokens * layers, TOPK), dtype=np.uint8), axis=1)
    while len(twice := np.flatnonzero((sets[:, 1:] == sets[:, :-1]).any(axis=1))):
        sets[twice] = np.sort(draw.integers(0, experts, (len(twice), TOPK), dtype=np.uint8), axis=1)
    return sets.reshape(num_tokens, layers, TOPK)


def best_cpu_s(work: Callable[[], object], *, runs: int = 5) -> float:
    """CPU seconds of this thread, the least of `runs`."""
    times = []
    for _ in range(runs):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


def sizes(routes: np.ndarray, *, experts: int) -> dict[str, float]:
    """Bytes a token of each form."""
    num_tokens, layers, topk = routes.shape
    sample = np.ascontiguousarray(routes[: min(num_tokens, 2000)])
    return {
        "int32": layers * topk * 4.0,
        "uint8": layers * topk * 1.0,
        "uint8, zlib level 1": len(zlib.compress(sample, 1)) / len(sample),
        "uint8, zlib level 9": len(zlib.compress(sample, 9)) / len(sample),
        "packed": pack(routes).nbytes / num_tokens,
        "log2 C(E, k)": layers * math.log2(math.comb(experts, topk)) / 8,
    }


def speeds(routes: np.ndarray, *, experts: int) -> dict[str, float]:
    """CPU seconds of each step for this one record."""
    num_tokens = len(routes) + 1
    engine = routes[..., ::-1].astype(np.int32)  # as an engine gives them: wide, in no order of ids
    packed = pack(routes)
    mask = np.zeros(num_tokens, np.uint8)
    turns = np.linspace(0, len(routes), 41).astype(int)  # forty turns, each a delta
    pieces = [RoutePiece(f"call {i}", routes[a:b], int(a)) for i, (a, b) in enumerate(pairwise(turns))]
    batch = Batch(
        step=0, rollout_ids=("row",), tokens=np.zeros(num_tokens, np.int32), cu_seqlens=np.array([0, num_tokens]),
        loss_mask=mask, rollout_log_probs=np.zeros(num_tokens, np.float32),
        weight_versions=np.zeros(num_tokens, np.int32), routed_experts=routes, rewards=np.zeros(1, np.float32),
        num_tests=np.ones(1, np.int32),
    )  # fmt: skip
    micro = pack_rows(batch, rows=[0], row_multiple=8)
    target = np.empty_like(routes)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain"
        write_tensors(plain, {"routes": routes}, metadata={})
        return {
            "memcpy": best_cpu_s(lambda: np.copyto(target, routes)),
            "canonical + compact, from int32": best_cpu_s(
                lambda: compact(canonical(engine), num_experts=experts)
            ),
            "validate": best_cpu_s(lambda: validate(routes, num_tokens=num_tokens, num_experts=experts)),
            "stitch, 40 turns": best_cpu_s(lambda: stitch(pieces, loss_mask=mask)),
            "gather into a micro-batch": best_cpu_s(lambda: micro.gather_routes(routes, num_experts=experts)),
            "open the mapped file": best_cpu_s(lambda: read_tensors(plain)),
            "open it and touch every byte": best_cpu_s(lambda: read_tensors(plain)[0]["routes"].max()),
            "pack": best_cpu_s(lambda: pack(routes)),
            "unpack": best_cpu_s(lambda: unpack(packed, shape=routes.shape)),
        }


def comparisons(sized: dict[str, float], timed: dict[str, float], *, num_bytes: int) -> list[Comparison]:
    """Sizes beside the least that a set of experts can take, speeds beside a memcpy, unpacking beside 1 GB/s."""
    least = sized["log2 C(E, k)"]
    speed = {step: num_bytes / seconds / 1e9 for step, seconds in timed.items()}

    def size(form: str, target: float) -> Comparison:
        what, against = f"a record as {form}", "log2 C(E, k)"
        return Comparison(what, against, "B a token", sized[form], least, is_more_better=False, target=target)

    return [
        Comparison(
            "stitching 40 turns",
            "memcpy",
            "GB/s",
            speed["stitch, 40 turns"],
            speed["memcpy"],
            is_more_better=True,
        ),
        Comparison(
            "unpacking", "1 GB/s a core", "GB/s", speed["unpack"], 1.0, is_more_better=True, target=1.0
        ),
        size("uint8", 1.32),
        size("packed", 1.1),
    ]


def main() -> None:
    given, keep = command_line(__doc__, tokens=33_000, layers=48, experts=256)
    tokens, layers, experts = given["tokens"], given["layers"], given["experts"]
    routes = random_routes(tokens - 1, layers=layers, experts=experts)
    sized, timed = sizes(routes, experts=experts), speeds(routes, experts=experts)
    print(f"{tokens} tokens, {layers} layers, 8 of {experts}: {routes.nbytes / 2**20:.1f} MiB as uint8\n")
    for form, size in sized.items():
        print(f"{form:32} {size:8.1f} B a token")
    for step, seconds in timed.items():
        print(f"{step:32} {seconds * 1e3:8.2f} ms  {routes.nbytes / seconds / 1e9:8.2f} GB/s")
    finish(
        "route_storage",
        comparisons(sized, timed, num_bytes=routes.nbytes),
        parameters=given | {"topk": TOPK},
        detail={"bytes_per_token": sized, "cpu_s": timed},
        keep=keep,
    )


if __name__ == "__main__":
    main()
