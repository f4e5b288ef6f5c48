"""Launching is not running: a campaign runs as a process of its own, and notebooks launch it or attach to it.

The process has its own session, so a notebook can be killed and run again without hurting it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from t1core.campaign.campaign import new_run_name
from t1core.config import CampaignConfig, load_config
from t1core.store import Run

# Path of a file in which a notebook's kernel notes what it launched, one JSON line each, for whoever executes it.
LAUNCHES_ENV = "T1CORE_LAUNCHES"


class LaunchedCampaign:
    """A campaign in another process."""

    def __init__(self, run_path: Path, log_path: Path, *, process: subprocess.Popen | None) -> None:
        self.run_path = run_path
        self.log_path = log_path
        self._process = process

    def watch(self, *, poll_s: float = 0.5) -> Iterator[str]:
        """Yield its lines as they come, until it ends. Raises RuntimeError with its error when it failed."""
        with self.log_path.open() as log:
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
        pid = self._process.pid if self._process else Run.open(self.run_path).status().pid
        os.kill(pid, signal.SIGINT)

    def _is_alive(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
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
    """Attach to a living run of exactly this configuration, or launch one.

    ValueError for a configuration that is wrong, before anything starts.
    """
    config = load_config(preset, overrides, seed=seed, name=name, run_root=run_root)
    living = _living_run(config)
    if living is not None:
        _note(None, living)
        return LaunchedCampaign(living, _log_path(living), process=None)
    run_path = Path(config.run_root).resolve() / config.name / new_run_name(config)
    log_path = _log_path(run_path)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "t1core.cli", "campaign", preset, "--run-name", run_path.name]
    for override in (*overrides, f"seed={seed}", f"name={name!r}", f"run_root={run_root!r}"):
        command += ["--set", override]
    with log_path.open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    _note(process.pid, run_path)
    return LaunchedCampaign(run_path, log_path, process=process)


def read_launches(path: Path) -> list[tuple[int | None, Path]]:
    """(process id, run directory) of what was launched; the id is None for a run that was only attached to."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [(entry["pid"], Path(entry["run"])) for entry in entries]


def _note(pid: int | None, run_path: Path) -> None:
    if LAUNCHES_ENV in os.environ:
        with Path(os.environ[LAUNCHES_ENV]).open("a") as file:
            file.write(json.dumps({"pid": pid, "run": str(run_path)}) + "\n")


def _log_path(run_path: Path) -> Path:
    """Beside the run directory, since it also holds what is said before the directory exists."""
    return run_path.with_name(run_path.name + ".log")


def _living_run(config: CampaignConfig) -> Path | None:
    folder = Path(config.run_root).resolve() / config.name
    wanted = config.model_dump(mode="json")
    for path in sorted(folder.glob("*/status.json"), reverse=True):
        run = Run.open(path.parent)
        if run.status().is_alive and run.config() == wanted:
            return path.parent
    return None
