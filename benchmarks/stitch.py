"""How fast trials become training rows, beside a memcpy of the same bytes and beside per-token lists.

    python -m benchmarks.stitch                                  # 512 trials of 33k tokens at T1's sizes
    python -m benchmarks.stitch --num-trials 4 --num-tokens 2000

Each trial is made, stitched in every way in turn, and dropped, so that memory holds a few of them at most. Times are
CPU seconds of the one thread that works, since other work may share the machine; wall time stands beside them.
What is compared:
- stitch: `t1core.tito.assemble`, from captured calls to a row;
- memcpy: the row's bytes copied into memory that is there already, into memory allocated for it, and the routes alone
  in as many pieces as there are calls, which is how they come;
- turns_alone: `assemble` of as many turns with next to no bytes in them, which is what Python costs;
- lists: the same row from Python lists, an element a token, made arrays at the end. It takes the same shortcuts: one
  prefix comparison a turn, slices rather than loops. It is slow, so fewer trials are stitched so.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.kept import Comparison, command_line, finish
from t1core.records import ModelCall, RowStatus, TrainingRow
from t1core.tito import assemble

_STREAMS = ("tokens", "loss_mask", "rollout_log_probs", "weight_versions", "rollout_routed_experts")


def make_calls(
    rng: np.random.Generator,
    *,
    num_tokens: int,
    num_turns: int,
    num_layers: int,
    top_k: int,
    num_experts: int,
) -> tuple[ModelCall, ...]:
    """The calls of a trial whose last one ends after `num_tokens`: a prompt, then answer and context in equal shares,
    routes as an engine sends them, from the last token of the call before on.
    """
    share = num_tokens // (2 * num_turns + 1)
    stream = rng.integers(0, 150_000, num_tokens, dtype=np.int32)
    ends = [num_tokens - 2 * share * (num_turns - 1 - turn) for turn in range(num_turns)]
    calls, start = [], 0
    for turn, end in enumerate(ends):
        rows = rng.integers(0, num_experts, (end - 1 - start, num_layers, top_k), dtype=np.uint8)
        calls.append(
            ModelCall(
                model_call_id=f"t/{turn}",
                rollout_id="t",
                parent_call_id=f"t/{turn - 1}" if turn else None,
                prompt_token_ids=stream[: end - share].copy(),
                completion_token_ids=stream[end - share : end].copy(),
                logprobs=rng.standard_normal(share, dtype=np.float32),
                finish_reason="stop",
                weight_version=1,
                output_versions=np.ones(share, dtype=np.int32),
                routed_experts=rows,
                routed_experts_start=start,
            )
        )
        start = end - 1
    return tuple(calls)


def as_lists(calls: Sequence[ModelCall]) -> list[dict[str, Any]]:
    """Calls as a harness with lists has them; routes a row a token. Not timed."""
    return [
        {
            "prompt": call.prompt_token_ids.tolist(),
            "sampled": call.completion_token_ids.tolist(),
            "logprobs": call.logprobs.tolist(),
            "versions": call.output_versions.tolist(),
            "routes": list(call.routed_experts),
        }
        for call in calls
    ]


def stitch_lists(calls: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The row of strictly continued calls from lists."""
    tokens: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    versions: list[int] = []
    routes: list[np.ndarray] = []
    for call in calls:
        prompt, sampled = call["prompt"], call["sampled"]
        assert prompt[: len(tokens)] == tokens
        context = prompt[len(tokens) :]
        tokens += context + sampled
        mask += [0] * len(context) + [1] * len(sampled)
        logprobs += [0.0] * len(context) + call["logprobs"]
        versions += [-1] * len(context) + call["versions"]
        routes += call["routes"]
    return {
        "tokens": np.array(tokens, dtype=np.int32),
        "loss_mask": np.array(mask, dtype=np.uint8),
        "rollout_log_probs": np.array(logprobs, dtype=np.float32),
        "weight_versions": np.array(versions, dtype=np.int32),
        "rollout_routed_experts": np.stack(routes),
    }


def stitch_arrays(calls: Sequence[ModelCall]) -> TrainingRow:
    (row,) = assemble(calls, reward=0.0, status=RowStatus.COMPLETED)
    return row


def measure(
    *,
    num_trials: int,
    num_list_trials: int,
    num_tokens: int,
    num_turns: int,
    num_layers: int = 48,
    top_k: int = 8,
    num_experts: int = 256,
    seed: int = 0,
) -> dict[str, Any]:
    """Medians over trials, rates and ratios. Raises AssertionError where two ways disagree about a row."""
    rng = np.random.default_rng(seed)
    taken: dict[str, list[tuple[float, float]]] = {}
    there: list[np.ndarray] | None = None
    bare = make_calls(
        rng, num_tokens=4 * num_turns + 2, num_turns=num_turns, num_layers=1, top_k=1, num_experts=1
    )
    for trial in range(num_trials):
        calls = make_calls(
            rng,
            num_tokens=num_tokens,
            num_turns=num_turns,
            num_layers=num_layers,
            top_k=top_k,
            num_experts=num_experts,
        )
        row = _timed(taken, "stitch", lambda calls=calls: stitch_arrays(calls))
        arrays = [getattr(row, name) for name in _STREAMS]
        if there is None:
            there = [array.copy() for array in arrays]
        _timed(
            taken,
            "memcpy",
            lambda arrays=arrays, there=there: [np.copyto(a, b) for a, b in zip(there, arrays, strict=True)],
        )
        _timed(taken, "memcpy_allocating", lambda arrays=arrays: [array.copy() for array in arrays])
        _timed(
            taken, "memcpy_in_pieces", lambda calls=calls, routes=there[-1]: _copy_routes(calls, into=routes)
        )
        _timed(taken, "turns_alone", lambda: stitch_arrays(bare))
        if trial < num_list_trials:
            lists = as_lists(calls)
            made = _timed(taken, "lists", lambda lists=lists: stitch_lists(lists))
            for name in _STREAMS:
                assert np.array_equal(made[name], getattr(row, name)), f"the two ways disagree about {name}"
        num_bytes = sum(array.nbytes for array in arrays)
    ways = {
        name: {
            "cpu_s": statistics.median(cpu for cpu, _ in pairs),
            "wall_s": statistics.median(wall for _, wall in pairs),
            "num_trials": len(pairs),
        }
        for name, pairs in taken.items()
    }
    for name, way in ways.items():
        if name != "turns_alone":
            moved = arrays[-1].nbytes if name == "memcpy_in_pieces" else num_bytes
            way |= {"tokens_per_s": num_tokens / way["cpu_s"], "bytes_per_s": moved / way["cpu_s"]}
    return {
        "parameters": {
            "num_trials": num_trials,
            "num_tokens": num_tokens,
            "num_turns": num_turns,
            "num_layers": num_layers,
            "top_k": top_k,
            "num_experts": num_experts,
            "seed": seed,
        },
        "bytes_a_trial": num_bytes,
        "ways": ways,
        "all_trials_stitched_cpu_s": sum(cpu for cpu, _ in taken["stitch"]),
    }


def _copy_routes(calls: Sequence[ModelCall], *, into: np.ndarray) -> None:
    for call in calls:
        start = call.routed_experts_start
        into[start : start + len(call.routed_experts)] = call.routed_experts


def _timed(taken: dict[str, list[tuple[float, float]]], name: str, work: Callable[[], Any]) -> Any:
    wall, cpu = time.perf_counter(), time.thread_time()
    made = work()
    taken.setdefault(name, []).append((time.thread_time() - cpu, time.perf_counter() - wall))
    return made


def comparisons(found: dict[str, Any]) -> list[Comparison]:
    """Stitching beside what bounds it, and beside lists; in GB/s, and Python's part in CPU seconds."""
    ways = found["ways"]

    def beside(name: str, against: str, *, target: float | None = None) -> Comparison:
        speeds = (ways[way]["bytes_per_s"] / 1e9 for way in ("stitch", name))
        return Comparison(
            "stitching with routes", against, "GB/s", *speeds, is_more_better=True, target=target
        )

    return [
        Comparison(
            "Python's part of a trial",
            "the whole of it",
            "CPU ms",
            1e3 * ways["turns_alone"]["cpu_s"],
            1e3 * ways["stitch"]["cpu_s"],
            is_more_better=False,
        ),
        beside("lists", "per-token lists"),
        beside("memcpy_allocating", "memcpy of the same bytes into new memory"),
        beside("memcpy", "memcpy of the same bytes", target=0.3),
    ]


def main() -> None:
    given, keep = command_line(__doc__, num_trials=512, num_list_trials=16, num_tokens=32_768, num_turns=40)
    found = measure(**given)
    for name, way in found["ways"].items():
        rates = (
            f"{way['tokens_per_s']:.3g} tokens/s  {way['bytes_per_s'] / 1e9:.2f} GB/s"
            if "bytes_per_s" in way
            else ""
        )
        print(f"{name:18} {1e3 * way['cpu_s']:9.2f} ms a trial (wall {1e3 * way['wall_s']:.2f})  {rates}")
    parameters = found.pop("parameters")
    finish("stitch", comparisons(found), parameters=parameters, detail=found, keep=keep)


if __name__ == "__main__":
    main()
