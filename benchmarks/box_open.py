"""A box's opening and first command, beside a bare bwrap; and what live boxes hold in memory.

    python -m benchmarks.box_open [--num-pairs 40] [--num-live 64] [--keep]

In each pair a box is opened and runs `true`, and bwrap runs `true` in fresh namespaces over the same files. Wall times
are medians over pairs, in turn, so that other work falls on both; CPU seconds are of this process and its children.
Memory is the proportional share (PSS) of all processes of the live boxes, each with its terminal.
"""

import asyncio
import resource
import shutil
import time
from collections.abc import Awaitable, Callable

import psutil

from benchmarks.kept import Comparison, command_line, finish, medians
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.sandbox import Box, BoxSpec

_BARE = (
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--unshare-all",
    "--die-with-parent",
    "true",
)


async def open_and_run(sandbox: BubblewrapSandbox, name: str) -> Box:
    box = await sandbox.open(BoxSpec(box_id=name, environment_dir=None))
    done = await box.exec("true", timeout_s=60.0)
    assert done.rc == 0
    return box


async def bare() -> None:
    bwrap = shutil.which("bwrap")
    assert bwrap is not None, "install bubblewrap"
    process = await asyncio.create_subprocess_exec(bwrap, *_BARE)
    assert await process.wait() == 0


def used_cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def pss_bytes() -> int:
    """Of all processes below this one."""
    return sum(child.memory_full_info().pss for child in psutil.Process().children(recursive=True))


async def measure(*, num_pairs: int, num_live: int) -> dict[str, float]:
    """Medians in seconds, and bytes a live box."""
    taken: dict[str, list[tuple[float, float]]] = {"box": [], "bare": []}

    async def timed[Made](name: str, work: Callable[[], Awaitable[Made]]) -> Made:
        wall, cpu = time.perf_counter(), used_cpu_s()
        made = await work()
        taken[name].append((time.perf_counter() - wall, used_cpu_s() - cpu))
        return made

    sandbox = BubblewrapSandbox()
    try:
        for pair in range(num_pairs):
            box = await timed("box", lambda name=f"pair-{pair}": open_and_run(sandbox, name))
            await box.close()
            await timed("bare", bare)
        before = pss_bytes()
        for number in range(num_live):
            await (await open_and_run(sandbox, f"live-{number}")).terminal()
        live_bytes = pss_bytes() - before
    finally:
        await sandbox.close()
    return {"bytes_a_live_box": live_bytes / num_live} | medians(taken)


def main() -> None:
    given, keep = command_line(__doc__, num_pairs=40, num_live=64)
    found = asyncio.run(measure(**given))
    for name, value in found.items():
        print(f"{name:18} {value:.4g}")
    comparisons = [
        Comparison(
            "memory of a live box", "6 MiB", "MiB", found["bytes_a_live_box"] / 2**20, 6.0,
            is_more_better=False, target=1.0,
        ),
        Comparison(
            "box open and first command", "bare bwrap and true", "ms", 1e3 * found["box_wall_s"],
            1e3 * found["bare_wall_s"], is_more_better=False, target=3.0,
        ),
    ]  # fmt: skip
    finish("box_open", comparisons, parameters=given, detail=found, keep=keep)


if __name__ == "__main__":
    main()
