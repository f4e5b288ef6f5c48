"""Launching is not running: a campaign runs as a process of its own, and notebooks launch it or attach to it.

The process has its own session, so a notebook can be killed and run again without hurting it. Beside a run directory
lie `<run>.log`, what the process says, and `<run>.launch.json`, who it is: it is found by that before its run directory
is made.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from t1core.campaign.run_name import new_run_name
from t1core.config import CampaignConfig, load_config
from t1core.store import Run, is_process, process_started, write_json

# Path of a file in which a notebook's kernel notes what it launched, one JSON line each, for whoever executes it.
LAUNCHES_ENV = "T1CORE_LAUNCHES"
_RECORD = ".launch.json"


@dataclass(frozen=True)
class Launch:
    """Who runs a campaign: the process by pid and start (seconds since the machine started) on a host, what of (a
    digest of the configuration), and where."""

    run: str
    config: str
    pid: int
    pid_started: float
    host: str

    @property
    def is_alive(self) -> bool:
        """Whether that process runs. False on any other host, where only the run's own status can tell."""
        return self.host == socket.gethostname() and is_process(self.pid, started=self.pid_started)


class LaunchedCampaign:
    """A campaign in another process: the child of this one, or one that was found."""

    def __init__(
        self,
        run_path: Path,
        *,
        process: subprocess.Popen | None = None,
        launch: Launch | None = None,
    ) -> None:
        self.run_path = run_path
        self.log_path = _log_path(run_path)
        self._process = process
        self._launch = launch

    def watch(self, *, poll_s: float = 0.5) -> Iterator[str]:
        """Yield its lines as they come, until it ends. Raises RuntimeError with its error when it failed."""
        # A campaign started by hand has no log here, only the one in its run directory.
        path = self.log_path if self.log_path.exists() else Run.open(self.run_path).logs / "driver.log"
        with path.open() as log:
            line = ""
            while True:
                is_alive = self._is_alive()  # before reading, so that the last lines are not missed
                while chunk := log.readline():
                    line += chunk
                    if line.endswith("\n"):
                        yield line.rstrip("\n")
                        line = ""
                if not is_alive:
                    break
                time.sleep(poll_s)
        self._raise_if_failed()

    def wait(self, progress: Callable[[str], None] = print) -> Run:
        """Follow it to its end and return the finished run."""
        for line in self.watch():
            progress(line)
        return Run.open(self.run_path)

    def stop(self) -> None:
        """Ask it to end; it closes its run as interrupted."""
        known = self._process or self._launch or Run.open(self.run_path).status()
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(known.pid, signal.SIGINT)

    def _is_alive(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        if self._launch is not None:
            return self._launch.is_alive
        return Run.open(self.run_path).status().is_alive

    def _raise_if_failed(self) -> None:
        if not (self.run_path / "status.json").is_file():
            tail = self.log_path.read_text()[-2000:]
            raise RuntimeError(f"the campaign ended before its run directory was made:\n{tail}")
        status = Run.open(self.run_path).status()
        if status.state != "finished":
            reason = status.error or "its process is gone without a word: killed, or out of memory"
            raise RuntimeError(f"the campaign in {self.run_path} ended as {status.state}: {reason}")


def launch_or_attach(
    *, preset: str, seed: int, overrides: list[str], run_root: str, name: str
) -> LaunchedCampaign:
    """Attach to the living campaign of exactly this configuration, also while it is still preparing, or launch one.

    A run that has ended, however it did, is left alone and a new one is launched beside it; `Run.open` reads an old
    one.
    ValueError for a configuration that is wrong, before anything starts.
    """
    config = load_config(preset, overrides, seed=seed, name=name, run_root=run_root)
    folder = Path(config.run_root).resolve() / config.name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".launch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        living = _living_launch(folder, config) or _living_run(folder, config)
        if living is not None:
            _note(None, living.run_path)
            return living
        run_path = folder / new_run_name(config)
        command = [sys.executable, "-m", "t1core.cli", "campaign", preset, "--run-name", run_path.name]
        fields = (f"seed={seed}", f"name={toml_string(name)}", f"run_root={toml_string(run_root)}")
        for override in (*overrides, *fields):
            command += ["--set", override]
        with _log_path(run_path).open("w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        launch = Launch(
            run=run_path.name,
            config=_digest(config),
            pid=process.pid,
            pid_started=process_started(process.pid) or 0.0,  # it has ended already
            host=socket.gethostname(),
        )
        try:
            write_json(run_path.with_name(run_path.name + _RECORD), asdict(launch))
        except BaseException:  # nobody would find it
            process.kill()
            process.wait()
            raise
    _note(process.pid, run_path)
    return LaunchedCampaign(run_path, process=process, launch=launch)


def toml_string(text: str) -> str:
    """A TOML basic string of any text, so that an override's value is read back as it was."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_launches(path: Path) -> list[tuple[int | None, Path]]:
    """(process id, run directory) of what was launched; the id is None for a run that was only attached to."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [(entry["pid"], Path(entry["run"])) for entry in entries]


def read_launch(run_path: Path) -> Launch | None:
    """Who was launched as this run, or None for a run that was started by hand."""
    path = run_path.with_name(run_path.name + _RECORD)
    return Launch(**json.loads(path.read_text())) if path.exists() else None


def _note(pid: int | None, run_path: Path) -> None:
    if LAUNCHES_ENV in os.environ:
        with Path(os.environ[LAUNCHES_ENV]).open("a") as file:
            file.write(json.dumps({"pid": pid, "run": str(run_path)}) + "\n")


def _log_path(run_path: Path) -> Path:
    """Beside the run directory, since it also holds what is said before the directory exists."""
    return run_path.with_name(run_path.name + ".log")


def _digest(config: CampaignConfig) -> str:
    return hashlib.sha256(json.dumps(config.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def _living_launch(folder: Path, config: CampaignConfig) -> LaunchedCampaign | None:
    wanted = _digest(config)
    for path in sorted(folder.glob("*" + _RECORD), reverse=True):
        launch = read_launch(folder / path.name.removesuffix(_RECORD))
        if launch is not None and launch.config == wanted and launch.is_alive:
            return LaunchedCampaign(folder / launch.run, launch=launch)
    return None


def _living_run(folder: Path, config: CampaignConfig) -> LaunchedCampaign | None:
    """A run that was not launched from here: by hand, or on another host of a shared disk."""
    wanted = config.model_dump(mode="json")
    for path in sorted(folder.glob("*/status.json"), reverse=True):
        run = Run.open(path.parent)
        if run.status().is_alive and run.config() == wanted:
            return LaunchedCampaign(path.parent)
    return None
