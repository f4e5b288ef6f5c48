"""How many boxes a machine holds: arithmetic over what an idle box takes and what there is."""

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from t1core.sandbox.state import BLOCK_SIZE

BOX_BYTES = 16 << 20  # control process, tmux and shell, with room for a small command
BOX_DESCRIPTORS = 4
BOX_PROCESSES = 6
MEMORY_FRAC = 0.5  # of what is free goes to boxes
SPARE_DESCRIPTORS = 64


@dataclass(frozen=True)
class Room:
    """`boxes` by each limit; the smallest counts."""

    boxes: Mapping[str, int]

    @property
    def num_boxes(self) -> int:
        return max(0, min(self.boxes.values()))

    @property
    def limited_by(self) -> str:
        return min(self.boxes, key=lambda name: self.boxes[name])


def measure_room() -> Room:
    """Look at this machine and this process's limits."""
    return room(
        free_bytes=_available_bytes(),
        descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        processes=_free_processes(),
    )


def room(*, free_bytes: int, descriptors: int, processes: int) -> Room:
    """Boxes by memory, open files of the host process, processes of the machine, and uids of one sandbox."""
    return Room(
        {
            "memory": int(free_bytes * MEMORY_FRAC) // BOX_BYTES,
            "open files": max(0, descriptors - SPARE_DESCRIPTORS) // BOX_DESCRIPTORS,
            "processes": processes // BOX_PROCESSES,
            "uids": BLOCK_SIZE,
        }
    )


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_processes() -> int:
    """What is left of the kernel's process numbers, of its threads, of our control group's and of our own."""
    threads = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    limits = [int(Path("/proc/sys/kernel", name).read_text()) for name in ("pid_max", "threads-max")]
    for path in ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"):
        if Path(path).is_file() and (text := Path(path).read_text().strip()).isdigit():
            limits.append(int(text))
    own = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if own != resource.RLIM_INFINITY and os.geteuid() != 0:  # root's boxes run as other uids
        limits.append(own)
    return max(0, min(limits) - threads)
