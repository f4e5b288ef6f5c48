"""A run's status: its state, how far it is, who writes it, and whether that process still lives."""

import json
import os
import socket
import time
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from t1core.store.atomic import write_json
from t1core.store.schema import SCHEMA_VERSION, check_version


class RunState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_final(self) -> bool:
        return self in (RunState.FINISHED, RunState.FAILED, RunState.INTERRUPTED)


@dataclass(frozen=True)
class Status:
    """`step` is the last finished one (-1 before the first); times are Unix seconds; `pid_started`, seconds since the
    machine started, tells the writer from a later process with its pid; `phase` is free text for people, such as "warm
    start".
    """

    state: RunState
    step: int
    num_steps: int | None
    phase: str
    error: str | None
    attempt: int
    pid: int
    pid_started: float
    host: str
    started: float
    heartbeat: float

    @property
    def is_alive(self) -> bool:
        """Whether the writer runs: by its pid on its own host, elsewhere by a heartbeat under two minutes
        old.
        """
        if self.state.is_final:
            return False
        if self.host != socket.gethostname():
            return time.time() - self.heartbeat < 120
        return is_process(self.pid, started=self.pid_started)

    @property
    def died(self) -> bool:
        """The writer is gone without having said how the run ended: killed, out of memory, power cut."""
        return not self.state.is_final and not self.is_alive


def is_process(pid: int, *, started: float) -> bool:
    """Whether the process with this pid that `process_started` dated so runs, not a later one."""
    return process_started(pid) == started


def process_started(pid: int) -> float | None:
    """When the process began, in seconds since the machine started, which no setting of the clock changes; None if
    there is no such process or only its zombie."""
    try:
        # After the name, which may hold spaces and brackets: state is the third field, the start the twenty-second.
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19]) / os.sysconf("SC_CLK_TCK")


def new_status(*, attempt: int, step: int = -1, num_steps: int | None = None) -> Status:
    """STARTING, written by this process."""
    now = time.time()
    pid = os.getpid()
    return Status(
        state=RunState.STARTING,
        step=step,
        num_steps=num_steps,
        phase="",
        error=None,
        attempt=attempt,
        pid=pid,
        pid_started=process_started(pid) or 0.0,
        host=socket.gethostname(),
        started=now,
        heartbeat=now,
    )


def write_status(path: Path, status: Status) -> None:
    write_json(path, {"schema_version": SCHEMA_VERSION} | asdict(status))


def read_status(path: Path) -> Status:
    fields = json.loads(path.read_text())
    check_version(fields.pop("schema_version", None), path=path)
    return replace(Status(**fields), state=RunState(fields["state"]))
