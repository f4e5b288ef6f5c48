"""A real campaign in a process of its own, to break parts of from outside."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

OVERRIDES = (
    "num_steps=1000",
    "agent.max_turns=2",
    "agent.max_new_tokens=16",
    "cluster.min_free_memory_mb=500",
    "cluster.probe_grace_s=1.0",
    "cluster.probe_period_s=1.0",
    "cluster.control_deadline_s=60.0",
)
SHARED_MEMORY = Path("/dev/shm")
PROGRAM = """
import sys
from t1core.campaign.assets import prepare
from t1core.campaign.campaign import run_campaign
from t1core.config import load_config
config = load_config("smoke", sys.argv[1:])
run_campaign(config, prepare(config), run_name="run", is_evaluated=False)
"""
# Every Python that finds it on its path notes whom it calls or looks up. To connect a datagram socket sends nothing.
NOTE_PEERS = """
import os, socket, sys
def note(event, arguments):
    if event == "socket.connect":
        peer, address = arguments
        host = address[0] if isinstance(address, tuple) and peer.type != socket.SOCK_DGRAM else None
    else:
        host = arguments[0] if event in ("socket.getaddrinfo", "socket.gethostbyname") else None
    if host:
        text = host if isinstance(host, str) else host.decode()
        number = os.open(__file__ + ".peers", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(number, text.encode() + b"\\n")
        os.close(number)
sys.addaudithook(note)
"""


class RunningCampaign:
    """Use as a context manager: whatever happens, the driver and all it started are gone afterwards."""

    def __init__(
        self,
        directory: Path,
        *,
        actor_path: Path,
        overrides: tuple[str, ...] = (),
        prelude: str = "",
        **env: str,
    ) -> None:
        """`prelude` is code that the driver runs first, to place a fault at a moment; `env` goes to every process."""
        self.run = directory / "runs" / "smoke" / "run"
        self._shared_before = set(SHARED_MEMORY.iterdir())
        self.output = directory / "output.txt"
        self.processes: list[psutil.Process] = []
        self.environments: dict[str, dict[str, str]] = {}
        self.box_root = Path(tempfile.mkdtemp(prefix="t1-boxes-"))
        self.box_root.chmod(0o755)  # boxes run as another uid
        self._noting = directory / "noting" / "sitecustomize.py"
        self._noting.parent.mkdir()
        self._noting.write_text(NOTE_PEERS)
        path = os.pathsep.join([str(self._noting.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        arguments = [
            *OVERRIDES,
            f"model.actor_path={actor_path}",
            f"run_root={directory / 'runs'}",
            *overrides,
        ]
        with self.output.open("w") as output:
            self.driver = subprocess.Popen(
                [sys.executable, "-c", prelude + PROGRAM, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ
                | {
                    "T1CORE_HOME": str(directory.parent / "t1core-home"),
                    "T1CORE_BOX_DIR": str(self.box_root),
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": path,
                }
                | env,
                start_new_session=True,
            )

    def __enter__(self) -> "RunningCampaign":
        return self

    def __exit__(self, *_: object) -> None:
        self.note_processes()
        self.driver.kill()
        self.driver.wait()
        for process in self.alive():
            process.kill()
        shutil.rmtree(self.box_root, ignore_errors=True)

    def until_in_mid_step(self, *, within_s: float) -> None:
        """Wait until a step has been trained on and the trials of a later one are in their boxes."""
        self._wait(lambda: self.status()["step"] >= 0, within_s=within_s, what="first step")
        self._wait(self.boxes, within_s=within_s, what="next boxes")

    def part(self, actor_class: str) -> psutil.Process:
        """The process of one part, by its actor's class."""
        self.note_processes()
        for process in self.processes:
            try:
                if process.cmdline()[:1] and process.cmdline()[0].startswith(f"ray::{actor_class}"):
                    return process
            except psutil.Error:
                continue
        raise AssertionError(f"no {actor_class} among the campaign's processes")

    def break_part(self, actor_class: str, number: signal.Signals) -> None:
        part = self.part(actor_class)
        self.note_processes()
        part.send_signal(number)

    def until_step(self, step: int, *, within_s: float) -> None:
        """Wait until a step has been trained on and recorded."""
        self._wait(lambda: self.status()["step"] >= step, within_s=within_s, what=f"step {step}")

    def until_ended(self, *, within_s: float) -> None:
        try:
            self.driver.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the campaign still runs {within_s} s later:\n{self.said()}") from None

    def note_processes(self) -> None:
        """Remember everything the driver has started so far, boxes and graders with it."""
        if self.driver.poll() is None:
            known = set(self.processes)
            family = psutil.Process(self.driver.pid).children(recursive=True)
            self.processes += [process for process in family if process not in known]
            for process in family:
                self._note_environment(process)

    def _note_environment(self, process: psutil.Process) -> None:
        try:
            command = process.cmdline()
            if command and (
                command[0].startswith("ray::") or Path(command[0]).name in ("raylet", "gcs_server")
            ):
                # An actor at work is named ray::Class.method.
                self.environments.setdefault(Path(command[0]).name.split(".")[0], process.environ())
        except psutil.Error:
            pass

    def alive(self, *, within_s: float = 15.0) -> list[psutil.Process]:
        """What is left of it after the longest fair wait."""
        _, left = psutil.wait_procs(self.processes, timeout=within_s)
        return left

    def shared_memory(self) -> list[str]:
        """Shared memory that is new since its start and that no living process holds: what it left behind. Others on
        the machine hold what is theirs."""
        new = {str(path) for path in set(SHARED_MEMORY.iterdir()) - self._shared_before}
        for process in psutil.process_iter() if new else ():
            try:
                held = {place.path for place in process.memory_maps()} | {
                    f.path for f in process.open_files()
                }
            except (psutil.Error, OSError):
                continue
            new -= held
        return sorted(new)

    def boxes(self) -> list[psutil.Process]:
        """Its live boxes."""
        self.note_processes()
        names = []
        for process in self.processes:
            try:
                if process.name() == "bwrap":
                    names.append(process)
            except psutil.Error:
                continue
        return names

    def foreign_peers(self) -> set[str]:
        """Hosts other than this machine that a Python process of the campaign called or looked up."""
        own = {"localhost", "0.0.0.0", socket.gethostname()}
        own |= {address.address for card in psutil.net_if_addrs().values() for address in card}
        return set(self._noting.with_name("sitecustomize.py.peers").read_text().split()) - own

    def status(self) -> dict:
        path = self.run / "status.json"
        return json.loads(path.read_text()) if path.exists() else {"step": -1, "state": "none"}

    def said(self) -> str:
        return self.output.read_text()[-3000:]

    def _wait(self, condition, *, within_s: float, what: str) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert self.driver.poll() is None, f"the campaign ended before its {what}:\n{self.said()}"
            assert time.monotonic() < deadline, f"no {what} within {within_s} s:\n{self.said()}"
            time.sleep(0.2)
