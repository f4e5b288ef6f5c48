"""Two ranks of a gloo group, of which one is late: what the other sees under a short timeout and under a longer one.

Runs in a process of its own, which forks both ranks.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Seen:
    """What the rank that waited saw: seconds, and the error, "" where the other came."""

    seconds: float
    error: str


def wait_for_a_late_peer(*, late_s: float, timeout_s: float) -> Seen:
    """Rank 0 reduces at once, rank 1 after `late_s`, in a group of the product's making with `timeout_s`."""
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/seen.json"
        command = [sys.executable, "-m", __name__, report, str(late_s), str(timeout_s)]
        subprocess.run(
            command, check=True, capture_output=True, env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
        )
        with open(report) as file:
            return Seen(**json.load(file))


def _rank(rank: int, *, port: int, report: str, late_s: float, timeout_s: float) -> None:
    import torch
    import torch.distributed as dist

    from t1core.train import process_group

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
    process_group.join(timeout_s=timeout_s)
    dist.barrier()
    began, error = time.monotonic(), ""
    if rank == 1:
        time.sleep(late_s)
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError as reason:
        error = str(reason)
    if rank == 0:
        with open(report, "w") as file:
            json.dump(asdict(Seen(time.monotonic() - began, error)), file)
    os._exit(0)  # a group with a broken connection does not come down in order


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    import torch.distributed  # once, before the fork  # noqa: F401

    given = dict(
        port=_free_port(), report=sys.argv[1], late_s=float(sys.argv[2]), timeout_s=float(sys.argv[3])
    )
    for number in range(2):
        if os.fork() == 0:
            _rank(number, **given)
    for _ in range(2):
        os.wait()
