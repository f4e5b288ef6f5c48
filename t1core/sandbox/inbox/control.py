"""The control process: a box's payload. Runs commands and drives the terminal on the host's orders.

One thread, one poll loop, no imports beyond a few built-in modules (a box's start costs what this file
costs). Orders and answers are `wire` messages on the socket whose number is argv[1]:

    exec id cwd cmd [name=value ...] + 3 descriptors  ->  exit id code
    kill id target                                    ->  (exit target follows)
    open id width height cwd                          ->  ok id
    keys id text max_wait_s                           ->  ok id is_idle
    screen id                                         ->  ok id text
    capture id is_whole                               ->  ok id text
    new id                                            ->  ok id is_new text

Unasked: `ready` at the start, and `broken why` as the last words of a box that what runs in it has ended.

The end of the socket is the end of the box. As the namespace's first process it reaps every orphan, and no
signal sent from inside the box can end it.
"""

import _ctypes
import _signal
import _socket
import os
import resource
import sys
from select import POLLIN, poll
from time import monotonic

from t1core.sandbox.inbox import wire
from t1core.sandbox.inbox.terminal import Terminal
from t1core.sandbox.inbox.watch import Watch

SIGKILL = 9
PR_SET_DUMPABLE = 4
MSG_CMSG_CLOEXEC = 0x40000000
TMUX_SOCKET = "/run/t1/tmux"
END_WITHIN_S = 0.5
_PACKET = wire.FRAME_BYTES + 1
_ANCILLARY = _socket.CMSG_SPACE(3 * 4)


class Control:
    """The loop and what it owns: running commands by id, and at most one terminal."""

    def __init__(self, socket: "_socket.socket", watch: Watch) -> None:
        self._socket, self._watch = socket, watch
        self._assembler = wire.Assembler()
        self._fds: list[int] = []
        self._running: dict[int, bytes] = {}  # pid -> id of the order that started it
        self._terminal: Terminal | None = None
        self._poll = poll()
        self._poll.register(socket.fileno(), POLLIN)
        self._child_ended, wakeup = os.pipe()
        for fd in (self._child_ended, wakeup):
            os.set_blocking(fd, False)
        _signal.signal(
            _signal.SIGCHLD, lambda number, frame: None
        )  # only a handled signal writes to the wakeup pipe
        _signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        self._poll.register(self._child_ended, POLLIN)
        self._polled_terminal = -1

    def run(self) -> None:
        """Serve until the host closes the socket, or what runs in the box breaks it."""
        self._answer(b"ready")
        try:
            why = self._serve()
        except Exception as error:  # tmux, which is the box's to change, makes no sense
            why = repr(error)
        if why:
            self._answer(b"broken", why.encode())

    def _serve(self) -> str:
        while True:
            terminal, wake_at = self._terminal, self._watch.due_at
            if terminal is not None:
                self._follow(terminal)
                wake_at = min(wake_at, terminal.due_at)
            timeout = max(0.0, (wake_at - monotonic()) * 1000) + 0.5
            for fd, _ in self._poll.poll(timeout):
                if fd == self._socket.fileno():
                    if not self._receive():
                        return ""
                elif fd == self._child_ended:
                    self._reap()
                elif terminal is not None and fd == terminal.out_fd:
                    terminal.pump()
            if terminal is not None and monotonic() >= terminal.due_at:
                terminal.tick()
            if monotonic() >= self._watch.due_at:
                is_active = bool(self._running) or (terminal is not None and terminal.is_waiting)
                if why := self._watch.look(is_active=is_active):
                    return why

    def _follow(self, terminal: Terminal) -> None:
        if terminal.out_fd != self._polled_terminal:
            if self._polled_terminal >= 0:
                self._poll.unregister(self._polled_terminal)
            if terminal.out_fd >= 0:
                self._poll.register(terminal.out_fd, POLLIN)
            self._polled_terminal = terminal.out_fd

    def _answer(self, *fields: bytes) -> None:
        for frame in wire.frames(wire.pack(*fields)):
            self._socket.send(frame)

    def _receive(self) -> bool:
        frame, ancillary, _, _ = self._socket.recvmsg(_PACKET, _ANCILLARY, MSG_CMSG_CLOEXEC)
        for _, kind, data in ancillary:
            if kind == _socket.SCM_RIGHTS:
                self._fds += [int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, len(data), 4)]
        if not frame:
            return False
        message = self._assembler.add(frame)
        if message is not None:
            order, ident, *rest = wire.unpack(message)
            try:
                getattr(self, "_do_" + order.decode())(ident, *rest)
            except Exception as error:  # an order that fails is the host's to report; the box lives on
                self._answer(b"error", ident, repr(error).encode())
        return True

    def _do_exec(self, ident: bytes, cwd: bytes, command: bytes, *env: bytes) -> None:
        fds, self._fds = self._fds, []
        assert len(fds) == 3
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                for target, fd in enumerate(fds):
                    os.dup2(fd, target)
                os.chdir(cwd)
                extra = dict(pair.partition(b"=")[::2] for pair in env)
                os.execve("/bin/bash", [b"bash", b"-c", command], {**os.environb, **extra})
            except OSError as error:
                os.write(2, f"{error}\n".encode())
            finally:
                os._exit(127)
        for fd in fds:
            os.close(fd)
        self._running[pid] = ident

    def _do_kill(self, ident: bytes, target: bytes) -> None:
        for pid, running in self._running.items():
            if running == target:
                os.killpg(pid, SIGKILL)

    def _reap(self) -> None:
        os.read(self._child_ended, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (ident := self._running.pop(pid, None)) is not None:
                self._answer(b"exit", ident, b"%d" % os.waitstatus_to_exitcode(status))

    def _do_open(self, ident: bytes, width: bytes, height: bytes, cwd: bytes) -> None:
        self._terminal = Terminal(
            width=int(width),
            height=int(height),
            socket_path=TMUX_SOCKET,
            cwd=cwd.decode(),
            env=dict(os.environ),
        )
        self._terminal.wait_ready(
            max_wait_s=20.0, done=lambda is_idle: self._answer(b"ok", ident, b"%d" % is_idle)
        )

    def _do_keys(self, ident: bytes, keys: bytes, max_wait_s: bytes) -> None:
        self._opened().send_keys(
            keys,
            max_wait_s=float(max_wait_s),
            done=lambda is_idle: self._answer(b"ok", ident, b"%d" % is_idle),
        )

    def _do_screen(self, ident: bytes) -> None:
        self._opened().screen(lambda text: self._answer(b"ok", ident, text))

    def _do_colours(self, ident: bytes) -> None:
        self._opened().colours(lambda text: self._answer(b"ok", ident, text))

    def _do_capture(self, ident: bytes, is_whole: bytes) -> None:
        self._opened().capture(lambda text: self._answer(b"ok", ident, text), is_whole=is_whole == b"1")

    def _do_new(self, ident: bytes) -> None:
        self._opened().new_output(lambda is_new, text: self._answer(b"ok", ident, b"%d" % is_new, text))

    def _opened(self) -> Terminal:
        assert self._terminal is not None, "no terminal was opened"
        return self._terminal


def forbid_tracing() -> None:
    """Other processes of the box share our uid; keep them out of our memory and descriptors."""
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 2), "prctl")
    _ctypes.call_function(prctl, (PR_SET_DUMPABLE, 0, 0, 0, 0))


def go_first() -> None:
    """When the host runs out of memory, what runs in a box is to end before what holds it."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:  # some hosts do not let us
        return


def end_everything() -> None:
    """Kill and reap what is left, so that its CPU time is counted; whatever escapes dies with us."""
    give_up = monotonic() + END_WITHIN_S
    try:
        os.kill(-1, SIGKILL)
        while monotonic() < give_up:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def main() -> None:
    """argv: the socket's descriptor, bytes of memory and of files for the box, its writable directories
    joined by colons, then `NAME=value` for each resource limit."""
    forbid_tracing()
    socket, memory, storage, directories, *limits = sys.argv[1:]
    go_first()
    for pair in limits:
        name, _, value = pair.partition("=")
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (int(value), int(value)))
    os.set_inheritable(int(socket), False)
    watch = Watch(
        memory_bytes=int(memory), storage_bytes=int(storage), directories=tuple(directories.split(":"))
    )
    Control(_socket.socket(fileno=int(socket)), watch).run()
    end_everything()
