"""What it takes to write a step's record, beside one parquet file of as many bytes.

    python -m benchmarks.store_step [--num-trials 64] [--num-tokens 8192] [--keep]

The trials are made up at sizes of choice: turns, calls with their prompts, a grade, then the trained batch with routes
and the trainer's arrays. The parquet file holds one column of random bytes, uncompressed, since no writer of parquet
can do with less than moving its bytes. Both are written in turn, into the same directory, and synced. Times are CPU
seconds of this process, the median of the rounds; wall time, which a busy disk decides, stands beside them.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.kept import Comparison, command_line, finish
from benchmarks.stitch import make_calls
from t1core.records import (
    Batch,
    Grade,
    RewardSource,
    RowStatus,
    StopReason,
    TestResult,
    TestStatus,
    Trajectory,
    Turn,
)
from t1core.store import Run
from t1core.tito import assemble

_PER_TOKEN = ("values", "advantages", "returns", "trainer_logprobs", "free_logprobs")


def make_trial(rng: np.random.Generator, *, name: str, num_tokens: int, num_turns: int) -> Trajectory:
    """A graded trial of `num_turns`, each with a few hundred characters of answer and of terminal."""
    calls = make_calls(
        rng, num_tokens=num_tokens, num_turns=num_turns, num_layers=48, top_k=8, num_experts=256
    )
    calls = tuple(
        replace(call, model_call_id=f"{name}/{index}", rollout_id=name) for index, call in enumerate(calls)
    )
    text = "".join(map(chr, rng.integers(97, 123, 400)))
    turns = tuple(
        Turn(
            index=index, model_call_id=call.model_call_id, response=text, commands=((f"ls {index}\n", 0.1),),
            is_parse_error=False, is_completion_claim=False, observation=text[::-1], screen=text,
            started_s=float(index), generated_s=index + 0.4, ended_s=index + 0.9,
        )
        for index, call in enumerate(calls)
    )  # fmt: skip
    tests = tuple(TestResult(f"test_outputs.py::test_{n}", TestStatus.PASSED, 0.01, "") for n in range(8))
    return Trajectory(
        trial_id=name, task_id=name, family="made-up", split="train", num_tests=8, step=0,
        stop_reason=StopReason.COMPLETED, failure=None, turns=turns, calls=calls,
        grade=Grade(0.4, RewardSource.CTRF, passed=8, total=8, solved=True, tests=tests),
        timings_s={"total": 1.0}, cpu_s={"grade": 0.2},
    )  # fmt: skip


def write_record(
    directory: Path, *, trials: Sequence[Trajectory], batch: Batch, per_token: Mapping[str, np.ndarray]
) -> int:
    """Record a step in a new run; returns the bytes of its two files."""
    with Run.create(directory, campaign="store", run_name="run", config={}, provenance={}) as run:
        run.record_trajectories(trials, step=0)
        run.record_tokens(batch, per_token=per_token)
        written = [path for name in ("trajectories", "tokens") for path in (run.path / name).iterdir()]
        return sum(path.stat().st_size for path in written)


def write_parquet(path: Path, content: pa.Table) -> None:
    pq.write_table(content, path, compression="none", use_dictionary=False, write_statistics=False)
    number = os.open(path, os.O_RDONLY)
    os.fsync(number)
    os.close(number)


def measure(*, num_trials: int, num_tokens: int, num_turns: int, num_rounds: int) -> dict[str, float]:
    """Medians in seconds, and the bytes written."""
    rng = np.random.default_rng(0)
    trials = [
        make_trial(rng, name=f"trial-{n:04d}", num_tokens=num_tokens, num_turns=num_turns)
        for n in range(num_trials)
    ]
    rows = [assemble(trial.calls, reward=0.4, status=RowStatus.COMPLETED)[0] for trial in trials]
    batch = Batch.from_rows(rows, step=0, num_tests=[8] * len(rows))
    per_token = {name: rng.standard_normal(batch.num_tokens, dtype=np.float32) for name in _PER_TOKEN}
    taken: dict[str, list[tuple[float, float]]] = {"record": [], "parquet": []}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        made = work()
        taken[name].append((time.process_time() - cpu, time.perf_counter() - wall))
        return made

    num_bytes = 0
    for _ in range(num_rounds):
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder)
            num_bytes = timed(
                "record",
                lambda d=directory: write_record(d, trials=trials, batch=batch, per_token=per_token),
            )
            column = pa.array([rng.bytes(2**20) for _ in range(num_bytes // 2**20 + 1)], type=pa.binary())
            content = pa.table({"bytes": column})
            timed("parquet", lambda d=directory, c=content: write_parquet(d / "plain.parquet", c))
    return {"num_bytes": num_bytes} | {
        f"{name}_{kind}_s": statistics.median(pair[place] for pair in pairs)
        for name, pairs in taken.items()
        for place, kind in enumerate(("cpu", "wall"))
    }


def main() -> None:
    given, keep = command_line(__doc__, num_trials=64, num_tokens=8192, num_turns=20, num_rounds=5)
    found = measure(**given)
    for name, value in found.items():
        print(f"{name:16} {value:.4g}")
    speeds = (found["num_bytes"] / found[f"{name}_cpu_s"] / 1e9 for name in ("record", "parquet"))
    beside = Comparison("a step's record", "parquet of as many bytes", "GB/s", *speeds, is_more_better=True)
    finish("store_step", [beside], parameters=given, detail=found, keep=keep)


if __name__ == "__main__":
    main()
