"""Whether a process was killed for want of memory: the kernel counts such kills, and its log names them.

A process that the kernel kills says nothing itself, so its death looks like any other. The counts are of this machine
and of the control group that we are in; what happens on other nodes of a cluster is not seen here.
"""

import os
import re
from pathlib import Path

_COUNTERS = (
    Path("/proc/vmstat"),
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
)
_KERNEL_LOG = Path("/dev/kmsg")
_KILLED = re.compile(r"(?:Out of memory|Memory cgroup out of memory): Killed process (\d+) \(([^)]*)\)")


class OutOfMemory:
    """Counts kills for want of memory from its making on."""

    def __init__(self, *, counters: tuple[Path, ...] = _COUNTERS, kernel_log: Path = _KERNEL_LOG) -> None:
        self._counters, self._kernel_log = counters, kernel_log
        self._before = self._counts()

    def told(self) -> str:
        """Words for an error, or "" when there was no such kill."""
        before, now = self._before, self._counts()
        new = max((count - before.get(path, 0) for path, count in now.items()), default=0)
        if new <= 0:
            return ""
        named = [f"{name} ({pid})" for pid, name in killed_processes(_read_log(self._kernel_log))[-new:]]
        which = f": {', '.join(named)}" if named else ""
        processes = "1 process" if new == 1 else f"{new} processes"
        return f"the kernel killed {processes} for want of memory since the campaign began{which}"

    def _counts(self) -> dict[Path, int]:
        found = {}
        for path in self._counters:
            try:
                lines = path.read_text().splitlines()
            except OSError:
                continue
            for line in lines:
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    found[path] = int(count)
        return found


def killed_processes(log: str) -> list[tuple[int, str]]:
    """(pid, name) of the processes that a kernel log says were killed for want of memory, in its order."""
    return [(int(pid), name) for pid, name in _KILLED.findall(log)]


def _read_log(path: Path) -> str:
    """What the kernel log holds now; "" where it may not be read."""
    records = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        while record := os.read(descriptor, 8192):
            records.append(record)
    except OSError:  # BlockingIOError at the end of a kernel log, or no right to read it
        pass
    finally:
        os.close(descriptor)
    return b"".join(records).decode(errors="replace")
