"""A process that grows on the host until the operating system ends it.

The kernel's part is played by the parent, which sends the same signal, without a word, when the child's resident set
passes a limit: filling a machine's memory for real would take its other processes along.
"""

import select
import subprocess
import sys
from dataclasses import dataclass

import psutil

_GROWS = """
print("begun", flush=True)
input()
held = [b"x" * 2**20 for _ in range({chunks})]
print("done", flush=True)
input()
"""


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative: the signal) and what it said."""

    code: int
    stdout: str
    stderr: str


def grow(*, need_mib: int, limit_mib: int) -> Ended:
    """A child that takes `need_mib`, a MiB at a time, where `limit_mib` are left beside what Python takes."""
    child = subprocess.Popen(
        [sys.executable, "-c", _GROWS.format(chunks=need_mib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdout.readline()
    seen = psutil.Process(child.pid)
    limit = seen.memory_info().rss + limit_mib * 2**20
    print(file=child.stdin, flush=True)
    while seen.memory_info().rss <= limit:
        if select.select([child.stdout], [], [], 0.001)[0] and seen.memory_info().rss <= limit:
            break
    else:
        child.kill()
    stdout, stderr = child.communicate("\n" if child.poll() is None else None)
    return Ended(child.returncode, stdout, stderr)
