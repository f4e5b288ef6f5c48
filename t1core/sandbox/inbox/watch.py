"""Limits that the kernel sets a process but not a box: memory in use and files written, summed over the whole
box.

Seen from inside by the control process, once a second while commands run and seldom otherwise.
"""

import os
from _collections_abc import Generator
from time import monotonic, process_time

ACTIVE_EVERY_S, IDLE_EVERY_S = 1.0, 10.0
WALK_SHARE = 0.05  # of a core may go into walking the files
SLICE_S, PAUSE_S = (
    0.1,
    0.05,
)  # a long walk goes in slices, so that orders are answered and memory is looked at
YIELD_EVERY = 500
ENTRY_BYTES = 512  # what a name takes of the host's disk even when its file is empty
SIGKILL, ENAMETOOLONG = 9, 36
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Kills the largest process of a box that uses too much memory; says when it has written too much."""

    def __init__(self, *, memory_bytes: int, storage_bytes: int, directories: tuple[str, ...]) -> None:
        self._memory_bytes, self._storage_bytes, self._directories = memory_bytes, storage_bytes, directories
        self.due_at = monotonic() + ACTIVE_EVERY_S
        self._walk: Generator[int] | None = None
        self._walked_s = self._walk_at = 0.0

    def look(self, *, is_active: bool) -> str:
        """One look; returns why the box must end, or ""."""
        self._spare_memory()
        started = monotonic()
        self.due_at = started + (ACTIVE_EVERY_S if is_active else IDLE_EVERY_S)
        if self._walk is None:
            if started < self._walk_at:
                return ""
            self._walk = _bytes_written(self._directories)
        spent_s = process_time()
        try:
            for total in self._walk:
                if total > self._storage_bytes:
                    return (
                        f"the box has written {total >> 20} MB, its limit is {self._storage_bytes >> 20} MB"
                    )
                if monotonic() > started + SLICE_S:  # orders wait; the walk goes on in a moment
                    self._walked_s += process_time() - spent_s
                    self.due_at = monotonic() + PAUSE_S
                    return ""
        except OSError:
            return (
                "the box has nested directories deeper than a path may be long, where nothing can be counted"
            )
        self._walk_at = monotonic() + (self._walked_s + process_time() - spent_s) / WALK_SHARE
        self._walk, self._walked_s = None, 0.0
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


def _bytes_written(directories: tuple[str, ...]) -> Generator[int]:
    """Blocks in use below the directories, and something for each name, as a sum that grows; links are not followed,
    what cannot be read counts nothing. OSError when a path would be longer than the kernel takes."""
    total, seen, pending = 0, 0, list(directories)
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    total += ENTRY_BYTES + _blocks(entry) * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    seen += 1
                    if seen % YIELD_EVERY == 0:
                        yield total
        except OSError as error:
            if error.errno == ENAMETOOLONG:
                raise
    yield total


def _blocks(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            raise
        return 0  # removed since: no reason to leave out its neighbours
