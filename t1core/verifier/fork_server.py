"""The host's end of the fork server: its process, its socket, and one answer a grade."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from t1core.sandbox import seccomp
from t1core.sandbox.etc import write_etc
from t1core.sandbox.inbox import wire
from t1core.sandbox.outbox import Outbox
from t1core.sandbox.runtime import install_payload, payload_argv
from t1core.sandbox.sandbox import Layer, SandboxUnavailable
from t1core.sandbox.state import idle
from t1core.verifier.ctrf import MAX_REPORT_BYTES, plain
from t1core.verifier.declared import Declared, read_declared

_PAYLOAD = (
    "t1core.verifier.forked.launch",
    "t1core.verifier.forked.server",
    "t1core.verifier.forked.session",
    "t1core.verifier.forked.seal",
    "t1core.verifier.forked.supervise",
    "t1core.verifier.forked.alone",
    "t1core.verifier.forked.root",
    "t1core.verifier.forked.script",
    "t1core.verifier.forked.namespaces",
    "t1core.sandbox.inbox.wire",
)
START_DEADLINE_S = 60.0
MAX_NOTES_BYTES = 1 << 16
LATE_S = 20.0  # how long past a grade's own timeout the server may take to say so


class GraderLost(RuntimeError):
    """The fork server ended or does not answer."""


@dataclass(frozen=True)
class GradeRun:
    """What came back of one child."""

    code: int
    cpu_s: float
    timed_out: bool
    phase: str
    report: bytes
    log: bytes
    flags: list[str]
    findings: tuple[str, ...] | None = None  # of the seal; None when nobody looked
    declared: Declared | None = None  # what a script of the task's own said; None where none was run
    passed_memory: bool = False
    canaries: tuple[str, str] | None = None
    wants_report: bool = True

    def canaries_as(self, expected: tuple[str, ...]) -> tuple[str, ...]:
        """The canaries' full names, which share the module of the expected tests."""
        modules = {name.partition("::")[0] for name in expected}
        return tuple(f"{module}::{name}" for module in modules for name in self.canaries or ())


class ForkServer:
    """The fork server's process and the host's end of its socket. Needs a running event loop."""

    def __init__(self, runtime: Path, *, directory: Path, system: Path) -> None:
        """`directory` is empty, reachable by other uids, and gone when the server is; tests find the /usr of
        `system`."""
        self._system = system
        for name in ("door", "root"):
            (directory / name).mkdir()
        write_etc(directory / "etc")
        self._directory = directory
        self._socket, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._outbox = Outbox(self._socket)
        payload = install_payload(runtime, _PAYLOAD)
        arguments = (str(inner.fileno()), str(runtime), payload, str(directory / "door"))
        with open(directory / "log", "wb") as log:
            self._process = subprocess.Popen(
                payload_argv(str(runtime), payload, _PAYLOAD[0], *arguments),
                pass_fds=(inner.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={},
                cwd="/",
                start_new_session=True,
            )
        inner.close()
        self._assembler = wire.Assembler()
        self._waiting: dict[bytes, asyncio.Future[list[bytes]]] = {}
        self._next_id = 0
        self.is_lost = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._receive)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    async def ready(self) -> None:
        """Wait until it can take grades. Raises SandboxUnavailable with what it said."""
        ready = self._waiting[b"ready"] = self._loop.create_future()
        paths = (self._directory / "root", self._directory / "etc", self._system)
        try:
            self._send([b"setup", *(os.fsencode(path) for path in paths), seccomp.program()], ())
            await asyncio.wait_for(ready, START_DEADLINE_S)
        except (GraderLost, TimeoutError) as error:
            said = (self._directory / "log").read_text(errors="replace")[-400:].strip() or str(error)
            self.close()
            message = f"the grader's fork server did not start: {said}"
            raise SandboxUnavailable(message, fix="run `t1 doctor`, which names what is in the way") from None
        except BaseException:
            self.close()
            raise

    async def grade(
        self,
        layer: Layer,
        *,
        tests: Path,
        mode: str,
        puts_tests_away: bool,
        env: Mapping[str, str],
        links: Sequence[str],
        canaries: tuple[str, str],
        timeout_s: float,
        memory_mb: int,
        max_processes: int,
    ) -> GradeRun:
        """Grade in a child; `mode` is pytest or script. However this ends, nothing of it runs as the layer's
        uid afterwards. Raises GraderLost."""
        self._next_id += 1
        ident = b"%d" % self._next_id
        fds = report, log, notes = tuple(
            os.memfd_create(name, os.MFD_CLOEXEC) for name in ("report", "log", "notes")
        )
        ended_by_itself = False
        try:
            numbers = (layer.uid, timeout_s, memory_mb, max_processes)
            words = (
                layer.workdir,
                str(tests),
                mode,
                "01"[puts_tests_away],
                "01"[layer.is_overlay],
                *canaries,
            )
            words += (
                str(len(env)),
                *(word for pair in env.items() for word in pair),
                str(len(links)),
                *links,
            )
            pairs = [word for top, host in _seen_by_tests(layer).items() for word in (top, str(host))]
            answer = self._waiting[ident] = self._loop.create_future()
            self._send(
                [
                    b"grade",
                    ident,
                    *(str(n).encode() for n in numbers),
                    *(os.fsencode(word) for word in (*words, *pairs)),
                ],
                fds,
            )
            try:
                code, cpu_s, late, phase = await asyncio.wait_for(asyncio.shield(answer), timeout_s + LATE_S)
            except asyncio.CancelledError:
                with contextlib.suppress(GraderLost):
                    self._send([b"cancel", ident], ())
                if not await _done(answer, within_s=LATE_S):
                    self.close()
                raise
            except TimeoutError:
                self.close()
                raise GraderLost(f"no answer within {timeout_s + LATE_S:g} s") from None
            ended_by_itself = int(code) >= 0 and late == b"0"
            noted = _content(notes, limit=MAX_NOTES_BYTES)
            return GradeRun(
                code=int(code),
                cpu_s=float(cpu_s),
                timed_out=late == b"1",
                phase=phase.split()[0].decode(),
                passed_memory=b"memory" in phase.split(),
                report=_content(report, limit=MAX_REPORT_BYTES + 1),
                log=_content(log, limit=1 << 20),
                flags=[],
                findings=read_findings(noted) if mode == "pytest" else None,
                declared=read_declared(noted) if mode == "script" else None,
            )
        finally:
            self._waiting.pop(ident, None)
            for fd in fds:
                os.close(fd)
            if not ended_by_itself:  # what is killed with its parent goes a moment after it
                await _done(asyncio.ensure_future(idle(layer.uid)))

    def _send(self, fields: list[bytes], fds: tuple[int, ...]) -> None:
        if self.is_lost:
            raise GraderLost("the fork server is gone")
        try:
            self._outbox.send(wire.pack(*fields), fds=fds)
        except OSError:
            self.close()
            raise GraderLost("the fork server is gone") from None

    def _receive(self) -> None:
        try:
            frame = self._socket.recv(wire.FRAME_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            frame = b""
        if not frame:
            self.close()
            return
        message = self._assembler.add(frame)
        if message is not None:
            kind, *fields = wire.unpack(message)
            answer = self._waiting.pop(b"ready" if kind == b"ready" else fields[0], None)
            if answer is not None and not answer.done():
                answer.set_result(fields[1:])

    def close(self) -> None:
        """End the server; its children die with it."""
        if self.is_lost:
            return
        self.is_lost = True
        self._loop.remove_reader(self._socket.fileno())
        self._outbox.close()
        self._socket.close()
        self._process.kill()
        self._process.wait()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(GraderLost("the fork server ended"))
                answer.exception()


def _seen_by_tests(layer: Layer) -> Mapping[str, Path]:
    """The agent's directories that tests see: of /logs, where a report is written, the artifacts alone."""
    seen = {top: host for top, host in layer.directories.items() if top != "/logs"}
    logs = layer.directories.get("/logs")
    if logs is not None and (artifacts := logs / "artifacts").is_dir() and not artifacts.is_symlink():
        seen["/logs/artifacts"] = artifacts
    return seen


async def _done(future: asyncio.Future, *, within_s: float | None = None) -> bool:
    """Wait for `future`, cancelled or not: for callers that are on their way out and must leave nothing
    behind."""
    give_up = None if within_s is None else asyncio.get_running_loop().time() + within_s
    while not future.done():
        left = None if give_up is None else give_up - asyncio.get_running_loop().time()
        if left is not None and left <= 0:
            return False
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future], timeout=left)
    return True


def read_findings(notes: bytes) -> tuple[str, ...] | None:
    """What the seal says, None when nobody looked; written beside the agent's code, so read as strictly as the
    report."""
    try:
        found = json.loads(notes)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        return None
    return tuple(plain(word)[:200] for word in found[:20])


def _content(fd: int, *, limit: int) -> bytes:
    size = min(os.fstat(fd).st_size, limit)
    return os.pread(fd, size, 0)
