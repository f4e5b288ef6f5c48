"""560 agents at once, and ten thousand by simulation, through the very scheduler that campaigns use.

    python benchmarks/pacing.py --simulate 10000        # virtual time: seconds of it pass at once
    python benchmarks/pacing.py --agents 560            # real boxes, real grading, scripted answers

Both launch more trials than they keep, with turn times drawn from a heavy tail (log-normal; the longest turn of 560
trials of 8 is about thirty times the median one), and box creation paced by the same token bucket. The simulation runs
`skim` on an event loop whose clock jumps to the next timer instead of waiting for it. What is kept: CPU seconds and
memory of the coordinating process, the delay of a timer in its event loop (late wake-ups: how long anything that it
coordinates may wait for it), how many boxes were open at once, and how long the tail took to be dealt with. In the real
step the coordinator and the trial host are one process, so its numbers hold the host's work, too.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import selectors
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from t1core.records import Grade, RewardSource, StopReason, Task, Trajectory
from t1core.rollout.pacing import Pacer
from t1core.rollout.skim import StepRollout, skim
from t1core.rollout.trial import TrialResult, TrialSpec

OUTPUT = Path(__file__).resolve().parents[1] / "figures" / "results" / "pacing.json"
_TURNS = 8
_MEDIAN_S, _SIGMA = 12.0, 1.0


class _JumpingSelector(selectors.DefaultSelector):
    """Does not wait for a timer: it moves the clock there. Files that are ready come first."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("the simulation waits for nothing")
        if not ready and timeout > 0:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def turn_times(seed: int, *, median_s: float = _MEDIAN_S) -> np.ndarray:
    """Seconds of each turn of one trial."""
    return np.random.default_rng([seed, 17]).lognormal(np.log(median_s), _SIGMA, _TURNS)


def specs(task: Callable[[int], Task], num: int) -> list[TrialSpec]:
    return [TrialSpec(f"s-{i:05d}", task(i), step=0, attempt=0, sampling_seed=i) for i in range(num)]


def simulate(num: int, *, keep: float, max_live: int, rate_per_s: float, tail: str = "cut") -> dict[str, Any]:
    """One step of `num` simulated trials, of which the first `keep` share is accepted."""
    loop = VirtualTimeLoop()
    pacer = Pacer(rate_per_s, clock=loop.time)
    cut: dict[str, asyncio.Event] = {}
    task = Task("task", "family", "train", Path(), "", ("a",))

    async def launch(spec: TrialSpec) -> TrialResult:
        event = cut[spec.trial_id] = asyncio.Event()
        await pacer.take()
        stop = StopReason.COMPLETED
        try:
            async with asyncio.timeout(float(turn_times(spec.sampling_seed).sum())):
                await event.wait()
            stop = StopReason.CUT
        except TimeoutError:
            pass
        grade = Grade(0.1, RewardSource.CTRF, 2, 4, False, ()) if stop is StopReason.COMPLETED else None
        trajectory = Trajectory(spec.trial_id, "task", "family", "train", 4, 0, stop, None, (), (), grade)
        return TrialResult(trajectory, ("row",) if grade else ())  # type: ignore[arg-type]

    async def cut_all(trial_ids: list[str]) -> None:
        for trial_id in trial_ids:
            cut[trial_id].set()

    cpu_s, began = time.process_time(), time.monotonic()
    try:
        rollout = loop.run_until_complete(
            skim(
                specs(lambda _: task, num),
                launch=launch,
                cut=cut_all,
                accept=int(num * keep),
                max_live=max_live,
                tail=tail,
            )
        )
    finally:
        loop.close()
    return _accounted(rollout) | {
        "virtual_s": rollout.rollout_s,
        "wall_s": time.monotonic() - began,
        "coordinator_cpu_s": time.process_time() - cpu_s,
        "cpu_us_per_trial": 1e6 * (time.process_time() - cpu_s) / num,
    }


async def _late_wakeups(into: list[float], *, period_s: float = 0.02) -> None:
    """Note how late each of many short sleeps ends, in seconds."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(period_s)
        into.append(time.monotonic() - before - period_s)


async def _count_boxes(runner: Any, into: list[int], *, period_s: float = 0.5) -> None:
    """Note again and again how many trials have a box, or are being given one."""
    while True:
        into.append(sum(trial.state != "queue" for trial in runner.live()))
        await asyncio.sleep(period_s)


async def run_real(
    num: int, *, keep: float, max_live: int, rate_per_s: float, median_s: float, pool: Path
) -> dict[str, Any]:
    """One step of `num` trials in real boxes, graded for real; the answers are a script's."""
    from t1core.agent.tokenizer import train_tokenizer

    late: list[float] = []
    boxes: list[int] = []
    with tempfile.TemporaryDirectory(prefix="t1-pacing-") as scratch:
        tokenizer = train_tokenizer(["a few words"], Path(scratch), vocab_size=300)
        cpu_s, began = time.process_time(), time.monotonic()
        runner, tasks, close = await _host(pool, tokenizer, rate_per_s=rate_per_s, median_s=median_s)
        watches = [
            asyncio.ensure_future(watch) for watch in (_late_wakeups(late), _count_boxes(runner, boxes))
        ]
        full: list[float] = []
        try:
            rollout = await skim(
                specs(lambda i: tasks[i % len(tasks)], num),
                launch=runner.run,
                cut=runner.cut,
                accept=int(num * keep),
                max_live=max_live,
                max_retries=1,
                on_progress=lambda rollout, live: (
                    full.append(time.monotonic()) if len(rollout.accepted) >= int(num * keep) else None
                ),
            )
        finally:
            for watch in watches:
                watch.cancel()
            await close()
    return _accounted(rollout) | {
        "wall_s": time.monotonic() - began,
        "coordinator_cpu_s": time.process_time() - cpu_s,
        "coordinator_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "children_cpu_s": sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]),
        "most_boxes": max(boxes),
        "late_wakeup_ms": {q: 1e3 * float(np.quantile(late, q)) for q in (0.5, 0.99, 1.0)},
        "tail_s": full[-1] - full[0] if full else None,
    }


async def _host(
    pool: Path, tokenizer: Any, *, rate_per_s: float, median_s: float
) -> tuple[Any, list[Task], Callable[[], Awaitable[None]]]:
    """A trial host whose engine is a script: it takes its turn times and then claims completion."""
    from t1core.agent.context import AgentLimits
    from t1core.agent.prompt import WORDINGS
    from t1core.agent.protocol import PROTOCOLS
    from t1core.records import Generation
    from t1core.rollout.trial import BoxLimits, RewardRule, TrialRunner
    from t1core.sandbox.bubblewrap import BubblewrapSandbox
    from t1core.sandbox.runtime import ensure_runtime
    from t1core.tasks.pool import Pool
    from t1core.verifier.grader import Grader

    script = (
        '{"analysis": "", "plan": "", "commands": [{"keystrokes": "ls\\n", "duration": 0.1}], '
        '"task_complete": false}'
    )
    answer = np.append(np.array(tokenizer.encode(script), np.int32), np.int32(tokenizer.im_end))

    async def generate(input_ids: np.ndarray, **request: Any) -> Generation:
        seed, turn = request["sampling"].sampling_seed, int(request["request_id"].rpartition("/")[2])
        await asyncio.sleep(float(turn_times(seed, median_s=median_s)[turn % _TURNS]))
        start = request["routed_experts_start"]
        rows = len(input_ids) + len(answer) - 1 - start
        return Generation(
            answer, np.zeros(len(answer), np.float32), np.ones((rows, 1, 1), np.uint8), start, "stop", 0,
            np.zeros(len(answer), np.int32), 0,
        )  # fmt: skip

    async def nothing(ident: str) -> bool:
        return False

    sandbox, grader = BubblewrapSandbox(), Grader(runtime=ensure_runtime())
    await grader.start()
    runner = TrialRunner(
        sandbox=sandbox,
        grader=grader,
        generate=generate,
        abort_request=nothing,
        release_session=nothing,
        tokenizer=tokenizer,
        protocol=PROTOCOLS["json"],
        wording=WORDINGS["compact"],
        limits=AgentLimits(
            max_turns=_TURNS, max_new_tokens=1024, context_tokens=1 << 20, context_margin_tokens=0, timeout_s=3600.0,
            max_wait_s=1.0, output_limit_bytes=2000,
        ),
        verifier_timeout_s=300.0,
        box_limits=BoxLimits(memory_mb=512, storage_mb=64, max_processes=64),
        reward=RewardRule("dense", 20.0, False),
        pacer=Pacer(rate_per_s),
        num_experts=2,
        deadline_s=3600.0,
        control_deadline_s=120.0,
    )  # fmt: skip

    async def close() -> None:
        await grader.close()
        await sandbox.close()

    # Their own limits on an agent's time are not those of a heavy tail.
    tasks = [replace(task, agent_timeout_s=None) for task in Pool.open(pool).tasks("train")]
    return runner, tasks, close


def _accounted(rollout: StepRollout) -> dict[str, Any]:
    failures = Counter(
        f"{item.trajectory.failure.boundary}: {item.trajectory.failure.kind}" for item in rollout.failed
    )
    outcomes = {name: len(items) for name, items in rollout.by_outcome().items()}
    return (
        {"launched": rollout.launched, "retried": rollout.retried} | outcomes | {"failures": dict(failures)}
    )


def _machine() -> dict[str, Any]:
    return {"processor": platform.processor(), "cpus": len(os.sched_getaffinity(0)), "load": os.getloadavg()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulate", type=int, default=0, help="trials of a simulated step")
    parser.add_argument("--agents", type=int, default=0, help="trials of a real step")
    parser.add_argument("--keep", type=float, default=512 / 560, help="share of the trials that is kept")
    parser.add_argument("--max-live", type=int, default=560)
    parser.add_argument("--rate", type=float, default=6.0, help="boxes opened a second")
    parser.add_argument("--median-s", type=float, default=_MEDIAN_S, help="median turn of a real step")
    parser.add_argument("--pool", type=Path, help="directory of tasks, for a real step")
    parser.add_argument("--output", default=str(OUTPUT), help="JSON file; '' prints only")
    options = parser.parse_args()
    if not (options.simulate or options.agents) or (options.agents and not options.pool):
        parser.error("give --simulate N, or --agents N with --pool DIR")
    shared = {"keep": options.keep, "max_live": options.max_live, "rate_per_s": options.rate}
    results: dict[str, Any] = {"machine": _machine(), "settings": shared}
    if options.simulate:
        results["simulated"] = simulate(options.simulate, **shared)
    if options.agents:
        results["real"] = asyncio.run(
            run_real(options.agents, **shared, median_s=options.median_s, pool=options.pool)
        )
    print(json.dumps(results, indent=2))
    if options.output:
        Path(options.output).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
