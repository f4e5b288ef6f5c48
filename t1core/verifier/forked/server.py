"""The fork server: a pytest session that waits at the door of collection, and one locked-in child a grade.

Started by `launch`; speaks `wire` messages on the socket whose number is argv[1]:

    setup stage etc system seccomp                        ->  ready
    grade id uid timeout_s memory_mb processes workdir tests mode away passing failing
          pairs [name value ...] links [link ...] [top host ...]
          + descriptors for report, log and notes         ->  done id code cpu_s timed_out phase
    cancel id                                             ->  (done id follows)

`code` is the child's exit code (negative: a signal); `phase` is "ran" when the tests were reached and "setup"
when the namespaces could not be made, which is our failure and never the agent's; "ran memory" when the grade took
more memory than it may.
"""

import _signal
import os
import select
import socket
import sys
from dataclasses import dataclass
from time import monotonic

from t1core.sandbox.inbox import wire
from t1core.verifier.forked import alone, namespaces, root, session
from t1core.verifier.forked.launch import HOST
from t1core.verifier.forked.session import NOTES_FD, REPLY_FD, REPORT_FD, REQUEST_FD
from t1core.verifier.forked.supervise import LOCKED_IN, supervise

SIGKILL = 9


@dataclass(frozen=True)
class Order:
    """One grade to do. Paths are the host's. `puts_tests_away` has the tests out of sight once they are collected."""

    ident: bytes
    uid: int
    timeout_s: float
    memory_mb: int
    processes: int
    workdir: str
    tests: str
    is_script: bool
    puts_tests_away: bool
    is_overlay: bool
    passing: str
    failing: str
    env: dict[str, str]
    links: tuple[str, ...]
    directories: dict[str, str]

    @classmethod
    def read(cls, fields: list[bytes]) -> "Order":
        """From the fields of a `grade` message."""
        ident, uid, timeout_s, memory_mb, processes, *words = fields
        workdir, tests, mode, away, over, passing, failing, num_env, *rest = map(os.fsdecode, words)
        at = 2 * int(num_env)
        env, (num_links, *rest) = rest[:at], rest[at:]
        links, pairs = rest[: int(num_links)], rest[int(num_links) :]
        return cls(
            ident=ident,
            uid=int(uid),
            timeout_s=float(timeout_s),
            memory_mb=int(memory_mb),
            processes=int(processes),
            workdir=workdir,
            tests=tests,
            is_script=mode == "script",
            puts_tests_away=away == "1",
            is_overlay=over == "1",
            passing=passing,
            failing=failing,
            env=dict(zip(env[::2], env[1::2], strict=True)),
            links=tuple(links),
            directories=dict(zip(pairs[::2], pairs[1::2], strict=True)),
        )


class Server:
    """Serves grades until the host closes the socket."""

    def __init__(self, sock: socket.socket, *, payload: str) -> None:
        """`payload` is where this package lies in every child."""
        self._socket = sock
        self._assembler = wire.Assembler()
        self._fds: list[int] = []
        self._children: dict[int, tuple[bytes, float, int]] = {}  # pid -> (id, deadline, phase pipe)
        self._timed_out: set[int] = set()
        self._ended, wakeup = os.pipe()
        for fd in (self._ended, wakeup):
            os.set_blocking(fd, False)
        _signal.signal(_signal.SIGCHLD, lambda number, frame: None)
        _signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        self._pid = os.getpid()
        self._payload = payload
        self._stage = self._etc = self._system = ""
        self._seccomp = b""

    def serve(self) -> Order:
        """The loop. Returns in a child only, locked in and with its order; the server itself ends with the
        process."""
        poller = select.poll()
        poller.register(self._socket.fileno(), select.POLLIN)
        poller.register(self._ended, select.POLLIN)
        while True:
            deadlines = [late for pid, (_, late, _) in self._children.items() if pid not in self._timed_out]
            timeout = max(0.0, min(deadlines) - monotonic()) * 1000 + 1 if deadlines else None
            for fd, _ in poller.poll(timeout):
                if fd == self._ended:
                    self._reap()
                elif (order := self._receive()) is not None:
                    return order
            self._kill_late()

    def _answer(self, *fields: bytes) -> None:
        for frame in wire.frames(wire.pack(*fields)):
            self._socket.send(frame)

    def _receive(self) -> Order | None:
        frame, fds, _, _ = socket.recv_fds(self._socket, wire.FRAME_BYTES + 1, 3)
        self._fds += fds
        if not frame:
            os._exit(0)  # children die with us
        message = self._assembler.add(frame)
        if message is None:
            return None
        kind, *fields = wire.unpack(message)
        if kind == b"setup":
            self._stage, self._etc, self._system = (HOST + os.fsdecode(field) for field in fields[:3])
            self._seccomp = fields[3]
            self._answer(b"ready")
            return None
        if kind == b"cancel":
            for pid, (ident, _, _) in self._children.items():
                if ident == fields[0]:
                    os.kill(pid, SIGKILL)
            return None
        return self._fork(Order.read(fields))

    def _fork(self, order: Order) -> Order | None:
        (report_fd, log_fd, notes_fd), self._fds = self._fds, []
        phase_read, phase_write = os.pipe()
        pid = os.fork()
        if pid == 0 and self._supervise(
            order, report_fd=report_fd, log_fd=log_fd, notes_fd=notes_fd, phase_fd=phase_write
        ):
            return order
        for fd in (phase_write, report_fd, log_fd, notes_fd):
            os.close(fd)
        self._children[pid] = (order.ident, monotonic() + order.timeout_s, phase_read)
        return None

    def _supervise(self, order: Order, *, report_fd: int, log_fd: int, notes_fd: int, phase_fd: int) -> bool:
        """In a child: enter the namespaces and fork their first process, for which this returns True. The
        child itself supervises it and ends with its exit code; it is outside the new pid namespace, and unseen
        from there."""
        code = 1
        try:
            for fd in (1, 2):
                os.dup2(log_fd, fd)
            _signal.set_wakeup_fd(-1)
            namespaces.die_with_parent(self._pid)
            namespaces.enter(uid=order.uid)
            (request_read, request_write), (reply_read, reply_write) = os.pipe(), os.pipe()
            inner = os.fork()
            if inner == 0:
                kept = {
                    REPORT_FD: report_fd, NOTES_FD: notes_fd, REQUEST_FD: request_write, REPLY_FD: reply_read,
                }  # fmt: skip
                self._lock_in(order, kept=kept, phase_fd=phase_fd)
                return True
            namespaces.kill_with_parent()  # the change of uid cleared it
            for fd in (request_write, reply_read, report_fd, notes_fd):
                os.close(fd)
            code = supervise(
                inner,
                request_fd=request_read,
                reply_fd=reply_write,
                phase_fd=phase_fd,
                memory_bytes=order.memory_mb << 20,
            )
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(code)

    def _lock_in(self, order: Order, *, kept: dict[int, int], phase_fd: int) -> None:
        os.setsid()  # a signal to its own process group would reach the server
        namespaces.kill_with_parent()
        namespaces.set_hostname("box")
        namespaces.loopback_up()
        root.build_root(
            self._stage,
            etc=self._etc,
            tests=HOST + order.tests,
            directories={top: HOST + host for top, host in order.directories.items()},
            workdir=order.workdir,
            system=self._system,
            below=self._system if order.is_overlay else "",
            programs=alone.programs(self._payload) if order.is_script else {},
        )
        root.unlink_doors(order.links)
        limits = {"NPROC": order.processes, "DATA": order.memory_mb << 20, "FSIZE": root.SCRATCH_BYTES}
        namespaces.limit({**limits, "NOFILE": 1024, "CORE": 0, "CPU": int(order.timeout_s) + 5})
        namespaces.give_up_privileges(self._seccomp)
        for target, fd in kept.items():
            os.dup2(fd, target, inheritable=False)  # no program of the agent's may have them
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.write(phase_fd, b"ran")
        os.write(REQUEST_FD, LOCKED_IN)
        os.closerange(3, REPORT_FD)

    def _kill_late(self) -> None:
        now = monotonic()
        for pid, (_, deadline, _) in self._children.items():
            if now >= deadline and pid not in self._timed_out:
                self._timed_out.add(pid)
                os.kill(pid, SIGKILL)

    def _reap(self) -> None:
        os.read(self._ended, 4096)
        while self._children:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            ident, _, phase_fd = self._children.pop(pid)
            with open(phase_fd, "rb") as pipe:
                phase = pipe.read(64) or b"setup"
            code = os.waitstatus_to_exitcode(status)
            late = pid in self._timed_out
            self._timed_out.discard(pid)
            cpu_s = usage.ru_utime + usage.ru_stime
            self._answer(b"done", ident, b"%d" % code, b"%.6f" % cpu_s, b"%d" % late, phase)


def main() -> None:
    """argv: the socket's descriptor, and the payload's path."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    session.warm_up("/tmp")
    server = Server(sock, payload=sys.argv[2])
    session.wait_at_the_door(server.serve)
