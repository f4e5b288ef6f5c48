"""Limits that the kernel sets a process but not a box: memory in use and files written, summed over the whole
box.

Seen from inside by the control process, once a second while commands run and seldom otherwise.
"""

import os
from time import monotonic

ACTIVE_EVERY_S, IDLE_EVERY_S = 1.0, 10.0
WALK_SHARE = 0.05  # of the time may go into walking the files
ENTRY_BYTES = 512  # what a name takes of the host's disk even when its file is empty
SIGKILL, ENAMETOOLONG = 9, 36
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Kills the largest process of a box that uses too much memory; says when it has written too much."""

    def __init__(self, *, memory_bytes: int, storage_bytes: int, directories: tuple[str, ...]) -> None:
        self._memory_bytes, self._storage_bytes, self._directories = memory_bytes, storage_bytes, directories
        self.due_at = monotonic() + ACTIVE_EVERY_S
        self._walk_at = 0.0

    def look(self, *, is_active: bool) -> str:
        """One look; returns why the box must end, or ""."""
        self._spare_memory()
        started = monotonic()
        self.due_at = started + (ACTIVE_EVERY_S if is_active else IDLE_EVERY_S)
        if started < self._walk_at:
            return ""
        written = [_bytes_below(directory) for directory in self._directories]
        ended = monotonic()
        self._walk_at = ended + (ended - started) / WALK_SHARE
        if None in written:
            return (
                "the box has nested directories deeper than a path may be long, where nothing can be counted"
            )
        total = sum(size or 0 for size in written)
        if total > self._storage_bytes:
            return f"the box has written {total >> 20} MB, its limit is {self._storage_bytes >> 20} MB"
        return ""

    def _spare_memory(self) -> None:
        sizes = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and name != "1":
                try:
                    with open(f"/proc/{name}/statm", "rb") as file:
                        _, resident, shared, *_ = file.read().split()
                    sizes[int(name)] = (int(resident) - int(shared)) * _PAGE_BYTES
                except (OSError, ValueError):
                    continue
        if sum(sizes.values()) > self._memory_bytes:
            try:
                os.kill(max(sizes, key=lambda pid: sizes[pid]), SIGKILL)
            except ProcessLookupError:
                return


def _bytes_below(directory: str) -> int | None:
    """Blocks in use below a directory, and something for each name; links are not followed, what cannot be read
    counts nothing. None when a path would be longer than the kernel takes."""
    total, pending = 0, [directory]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    total += ENTRY_BYTES + entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError as error:
            if error.errno == ENAMETOOLONG:
                return None
    return total
