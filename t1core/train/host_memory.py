"""Host memory for what leaves the device: what it takes, what there is, and refusing beforehand when it does not fit.

A run that outgrows the host is ended by the operating system without a word, so the sum is done before the first step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_GIB = 2**30


@dataclass(frozen=True)
class OffloadDemand:
    """Bytes one rank may have on the host at once: by role, what its learner moves there (both roles are there for a
    moment when they swap), and copies of the actor's weights as behaviour snapshots."""

    learner_bytes: Mapping[str, int]
    snapshot_bytes: int
    num_snapshots: int

    @property
    def total_bytes(self) -> int:
        return sum(self.learner_bytes.values()) + self.num_snapshots * self.snapshot_bytes


def check_host_memory(demand: OffloadDemand, *, num_ranks: int, available_bytes: int) -> None:
    """ValueError with the arithmetic when `num_ranks` ranks of one host want more than is available there.

    Snapshots are counted in full although some may lie there already: the sum errs on the safe side.
    """
    needed = num_ranks * demand.total_bytes
    if needed <= available_bytes:
        return
    terms = [f"{role} {size / _GIB:.2f} GiB" for role, size in demand.learner_bytes.items()]
    terms.append(f"{demand.num_snapshots} snapshots of {demand.snapshot_bytes / _GIB:.2f} GiB")
    raise ValueError(
        f"train.offload needs {needed / _GIB:.2f} GiB of host memory and {available_bytes / _GIB:.2f} GiB are "
        f"available: {num_ranks} ranks on this host x ({' + '.join(terms)} = {demand.total_bytes / _GIB:.2f} GiB); "
        "spread the ranks over more hosts, raise data_parallel so that each holds less optimiser state, or set "
        "train.offload=false"
    )


def available_bytes(cgroup: Path = _CGROUP) -> int:
    """Memory this process may still use: the machine's, or what its control group leaves if that is less."""
    free = psutil.virtual_memory().available
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        # Page cache counts as used but is given back when memory runs short.
        cache = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except OSError:
        return free
    if limit == "max":
        return free
    return max(0, min(free, int(limit) - used + int(cache.get("inactive_file", 0))))
