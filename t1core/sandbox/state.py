"""Where boxes keep their files on the host, and which uid each runs as.

A process claims a block: a directory and 1,024 uids, by a lock that the kernel drops when the process dies.
Claiming a block empties it, so what a killed host left behind goes away by itself. As a plain user every box
has the user's uid.
"""

import fcntl
import os
import shutil
from pathlib import Path

from t1core.sandbox.runtime import reachable_directory, state_root

FIRST_UID = 900_000
BLOCK_SIZE = 1024
NUM_BLOCKS = 64


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
    """Remove a tree that others wrote, missing or not. Links are not followed; closed directories are
    opened first."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except PermissionError:
        pending = [str(path)]
        while pending:
            directory = pending.pop()
            os.chmod(directory, 0o700)
            with os.scandir(directory) as entries:
                pending += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        shutil.rmtree(path)


class StateBlock:
    """A claimed block: hands out box directories and uids, one each, and takes them back."""

    def __init__(self) -> None:
        root = reachable_directory(Path(os.environ.get("T1CORE_BOX_DIR") or state_root() / "boxes"))
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
            raise ValueError(
                f"all {NUM_BLOCKS} blocks under {root} are in use: too many processes open boxes here"
            )
        self.path = root / f"block-{self._index}"
        if self.path.exists():
            remove_tree(self.path)
        self.path.mkdir()
        self.path.chmod(0o711)
        self._free = list(range(BLOCK_SIZE - 1, -1, -1))

    def claim(self) -> tuple[Path, int]:
        """A fresh directory that others can pass through but not list, and the uid of the box that will use
        it.

        Raises ValueError when all are taken.
        """
        if not self._free:
            raise ValueError(f"{BLOCK_SIZE} boxes are open in this process; close some first")
        slot = self._free.pop()
        path = self.path / str(slot)
        if path.exists():
            remove_tree(path)
        path.mkdir()
        path.chmod(0o711)
        return path, FIRST_UID + self._index * BLOCK_SIZE + slot if os.geteuid() == 0 else os.geteuid()

    def release(self, path: Path) -> None:
        """Remove a claimed directory and free its slot."""
        if path.exists():
            remove_tree(path)
        slot = int(path.name)
        if slot not in self._free:
            self._free.append(slot)

    def close(self) -> None:
        """Give the block back."""
        if self._lock >= 0:
            remove_tree(self.path)
            os.close(self._lock)
            self._lock = -1
