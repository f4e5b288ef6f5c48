"""The server process: checked, started in its own session, watched, and killed whole."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from t1core.rollout.engine import EngineDead
from t1core.rollout.sglang.serve import remove_shared_memory, shared_memory_of
from t1core.rollout.sglang.version import SGLangVersion, parse_version

SERVE = Path(__file__).with_name("serve.py")
_log = logging.getLogger(__name__)


def check_environment(python: Path, *, device: str) -> SGLangVersion:
    """Ask SGLang's Python for its versions. Raises ValueError when SGLang is absent, unsupported, or
    shimmed wrongly.
    """
    if not python.is_file():
        raise ValueError(
            f"sglang python {python}: no such file; point it at the Python of SGLang's own environment"
        )
    answer = subprocess.run(
        [python, SERVE, "versions"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if answer.returncode != 0:
        raise ValueError(f"sglang python {python} fails: {answer.stderr.strip()[-300:]}")
    found = json.loads(answer.stdout)
    if found["sglang"] is None:
        raise ValueError(f"sglang python {python}: sglang is not installed there")
    version = parse_version(found["sglang"])
    if device == "cpu" and found["has_amx"]:
        raise ValueError(
            "sglang on this CPU: it has AMX, for which SGLang calls compiled kernels that its PyPI packages "
            "lack; use the embedded engine, or SGLang's own CPU build"
        )
    if not version.was_run:
        _log.warning("sglang %s is accepted but this client was not run against it", version)
    return version


def free_port() -> int:
    """A TCP port free on the loopback a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One SGLang server. It dies with this process: it holds the reading end of a pipe that only we can
    write.
    """

    def __init__(
        self, python: Path, *, flags: Sequence[str], environment: Mapping[str, str], log_file: Path, name: str
    ) -> None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_file = log_file
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [python, SERVE, "launch", *flags],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check_alive(self) -> None:
        """Raise EngineDead, with the end of the log, when the process has ended."""
        code = self._process.poll()
        if code is not None:
            raise EngineDead(f"{self.name}: the SGLang server ended with code {code}; {self.log_tail()}")

    def log_tail(self, *, num_bytes: int = 1500) -> str:
        """The last of the log that names an error, with where the log is."""
        text = self.log_file.read_bytes()[-20_000:].decode(errors="replace")
        lines = [
            line for line in text.splitlines() if "Error" in line or "error" in line
        ] or text.splitlines()
        return f"{chr(10).join(lines[-5:])[-num_bytes:]} (log: {self.log_file})"

    async def wait_until_ready(self, is_ready, *, deadline_s: float) -> float:
        """Poll `is_ready()` (async) until true; returns the seconds it took. Raises EngineDead at death or
        deadline.
        """
        started = time.monotonic()
        while time.monotonic() - started < deadline_s:
            self.check_alive()
            if await is_ready():
                return time.monotonic() - started
            await asyncio.sleep(0.2)
        raise EngineDead(
            f"{self.name}: the SGLang server was not ready after {deadline_s:g} s; {self.log_tail()}"
        )

    def kill(self) -> None:
        """Kill the whole process group, reap it and remove its shared memory. Safe to call twice."""
        left = shared_memory_of(self._process.pid)
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        remove_shared_memory(left)
