"""Ranks of a gloo group as forks of one process that only imports: a start costs its seconds once, whatever the world.

A test calls `run_ranks` with a script and its job; the script calls `fork_ranks` with what a rank does.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE_S = 900


def run_ranks(script: Path, job: dict[str, Any], directory: Path) -> None:
    """Run `script` on the job, which lies in `directory` as job.json; AssertionError with its log if it fails."""
    (directory / "job.json").write_text(json.dumps(job))
    with (directory / "ranks.log").open("w") as log:
        ranks = subprocess.Popen(
            [sys.executable, str(script), str(directory / "job.json")],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            start_new_session=True,
        )
        try:
            code = ranks.wait(DEADLINE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ranks.pid, signal.SIGKILL)
            ranks.wait()
    assert code == 0, (directory / "ranks.log").read_text()[-6000:]


def fork_ranks(work: Callable[[int], None], *, world: int) -> None:
    """Do `work(rank)` in a child for each rank. The first that fails ends the others and this process."""
    children = [_forked(work, rank) for rank in range(world)]
    while children:
        child, status = os.wait()
        children.remove(child)
        if status:
            for other in children:
                os.kill(other, signal.SIGKILL)
            sys.exit(1)


def _forked(work: Callable[[int], None], rank: int) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(rank)
            code = 0
        except BaseException:
            print(f"rank {rank}:\n{traceback.format_exc()}", flush=True)
        finally:
            os._exit(code)
    return child
