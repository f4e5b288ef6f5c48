"""Where boxes keep their files on the host, and which uid each runs as.

A process claims a block: a directory and 1,024 uids, by a lock that the kernel drops when the process dies.
Claiming a block empties it, so what a killed host left behind goes away by itself. As a plain user every box
has the user's uid.
"""

import asyncio
import fcntl
import itertools
import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from t1core.sandbox.runtime import reachable_directory, state_root
from t1core.sandbox.sandbox import SandboxUnavailable

FIRST_UID = 900_000
BLOCK_SIZE = 1024
NUM_BLOCKS = 64
IDLE_WITHIN_S = 10.0


def lacks_uids() -> str:
    """Why this root user cannot give boxes uids of their own, or "" when it can or is no root.

    Root of a user namespace that maps few uids (a rootless container) is the case in point.
    """
    if os.geteuid() != 0:
        return ""
    ranges = [
        tuple(int(word) for word in line.split())
        for line in Path("/proc/self/uid_map").read_text().splitlines()
    ]
    last = FIRST_UID + NUM_BLOCKS * BLOCK_SIZE
    if any(first <= FIRST_UID and last <= first + count for first, _, count in ranges):
        return ""
    return f"this root user lacks uids {FIRST_UID} to {last - 1}, which boxes run as"


def remove_tree(path: Path) -> None:
    """Remove a tree that others wrote, missing or not, in which nothing runs any more.

    Links are not followed, closed directories are opened first, and a tree may be nested deeper than a path may be
    long: what lies two levels down is moved up one, until there is nothing left.
    """
    try:
        top = _opened(path)
    except FileNotFoundError:
        return
    fresh = (f".{secrets.token_hex(8)}-{number}" for number in itertools.count())
    try:
        while directories := _without_files(top):
            for name in directories:
                inner = _opened(name, dir_fd=top)
                try:
                    for deeper in _without_files(inner):
                        if os.geteuid() != 0:
                            os.chmod(deeper, 0o700, dir_fd=inner)
                        os.rename(deeper, next(fresh), src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _opened(path: Path | str, *, dir_fd: int | None = None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    if os.geteuid() != 0:
        os.chmod(path, 0o700, dir_fd=dir_fd)
    return os.open(path, flags, dir_fd=dir_fd)


def _without_files(directory: int) -> list[str]:
    """Unlink all but the directories in an open directory; returns their names."""
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        if not is_directory:
            os.unlink(name, dir_fd=directory)
    return [name for name, is_directory in found if is_directory]


def box_root() -> Path:
    """Where blocks lie: T1CORE_BOX_DIR, or a folder of `state_root`."""
    return Path(os.environ.get("T1CORE_BOX_DIR") or state_root() / "boxes")


def clear_abandoned(*, within_s: float = IDLE_WITHIN_S) -> None:
    """Remove the blocks on this host whose process is gone, so that a killed one leaves no box behind.

    The last processes of its boxes may still be dying: what they write meanwhile is removed again until `within_s`
    is over, then OSError.
    """
    give_up = time.monotonic() + within_s
    for path in sorted(box_root().glob("block-*.lock")):
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            while (block := path.with_suffix("")).exists():
                try:
                    remove_tree(block)
                except OSError:
                    if time.monotonic() >= give_up:
                        raise
                    time.sleep(0.1)
        except BlockingIOError:  # its process lives
            continue
        finally:
            os.close(lock)


async def idle(uid: int, *, within_s: float = IDLE_WITHIN_S) -> bool:
    """Wait until no process of the host runs as `uid`, a box's; False when one still does.

    For the ends that nobody could watch: killed processes take a moment to go. A plain user's boxes share a
    uid, so that there is nothing to wait for.
    """
    if os.geteuid() != 0:
        return True
    give_up = asyncio.get_running_loop().time() + within_s
    while _runs_as(uid):
        if asyncio.get_running_loop().time() >= give_up:
            return False
        await asyncio.sleep(0.02)
    return True


def _runs_as(uid: int) -> bool:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/status", "rb") as file:
                    status = file.read()
            except OSError:  # it has just ended
                continue
            is_zombie = status.partition(b"\nState:")[2].split(None, 1)[0] == b"Z"
            if not is_zombie and int(status.partition(b"\nUid:")[2].split(None, 1)[0]) == uid:
                return True
    return False


@dataclass(eq=False)
class Claim:
    """A box's directory, which others can pass through but not list, and the uid it runs as."""

    path: Path
    uid: int
    _give_back: "Callable[[Claim], None]" = field(repr=False)
    _is_held: bool = True

    def release(self) -> None:
        """Remove the directory and free the slot; from the second time on, nothing: the slot may be another
        box's by then. Nothing may run as `uid` any more."""
        if self._is_held:
            self._is_held = False
            self._give_back(self)


class StateBlock:
    """A claimed block: hands out box directories and uids, one each, and takes them back.

    The slot that has been free for longest is taken first.
    """

    def __init__(self, *, num_slots: int = BLOCK_SIZE) -> None:
        if not 0 < num_slots <= BLOCK_SIZE:
            raise ValueError(f"num_slots {num_slots} must be between 1 and {BLOCK_SIZE}")
        self._num_slots = num_slots
        root = reachable_directory(box_root())
        for index in range(NUM_BLOCKS):
            lock = os.open(root / f"block-{index}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            self._lock, self._index = lock, index
            break
        else:
            raise SandboxUnavailable(
                f"all {NUM_BLOCKS} blocks under {root} are in use: too many processes open boxes here",
                fix="end some of them, or set T1CORE_BOX_DIR to another directory",
            )
        self.path = root / f"block-{self._index}"
        if self.path.exists():
            remove_tree(self.path)
        self.path.mkdir()
        self.path.chmod(0o711)
        self._free = deque(range(num_slots))

    @property
    def num_free(self) -> int:
        """Places that nobody has claimed."""
        return len(self._free)

    def claim(self) -> Claim:
        """A fresh directory and a uid that nobody else uses. Raises SandboxUnavailable when all are taken, and
        ValueError when the block was given back."""
        if self._lock < 0:
            raise ValueError("this sandbox is closed: open another one")
        if not self._free:
            raise SandboxUnavailable(
                f"{self._num_slots} boxes and layers are open in this sandbox",
                fix="close layers once they are graded, or run fewer trials at once",
            )
        slot = self._free.popleft()
        path = self.path / str(slot)
        if path.exists():
            remove_tree(path)
        path.mkdir()
        path.chmod(0o711)
        uid = FIRST_UID + self._index * BLOCK_SIZE + slot if os.geteuid() == 0 else os.geteuid()
        return Claim(path, uid, self._take_back)

    def _take_back(self, claim: Claim) -> None:
        if self._lock < 0:  # another process may have the block by now
            return
        remove_tree(claim.path)
        self._free.append(int(claim.path.name))

    def close(self) -> None:
        """Give the block back, with every directory in it, claimed or not."""
        if self._lock >= 0:
            remove_tree(self.path)
            os.close(self._lock)
            self._lock = -1
