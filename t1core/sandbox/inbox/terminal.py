"""The box's terminal: one tmux session, driven by one control-mode client, so that a turn forks nothing.

tmux answers each command with a block between `%begin` and `%end` lines, in order, and reports what the pane
prints as `%output` lines. The shell is idle when it is the terminal's foreground process, it sleeps, it is a
moment since the pane printed anything, and the cursor stands right after a bare prompt. A preempted shell is
runnable, not sleeping, so a busy machine delays the answer but does not make it wrong.
"""

import os
from _collections_abc import Callable  # collections.abc would import all of collections, at 2 ms a box
from time import monotonic

QUIET_S = 0.012
RECHECK_S = (0.02, 0.04, 0.08, 0.15)
PROMPT_START, PROMPT_END = b"root@box:", b"#"
KEYS_PER_COMMAND = 4000
STUCK_S = 15.0  # how long tmux may leave a command unanswered before it is taken for stopped
RESEND_S = 0.02
SIGKILL = 9
NEVER = float("inf")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ./_,:=+@%^&*()[]|<>?!'-")


def quoted(keys: bytes) -> bytes:
    """One argument of a tmux command line that stands for exactly these bytes (octal escapes for the
    rest)."""
    return b'"' + b"".join(bytes((b,)) if b in _PLAIN else b"\\%03o" % b for b in keys) + b'"'


class Terminal:
    """tmux in control mode. The event loop owns it: `pump` when `out_fd` is readable, `tick` when
    `wake_at` has come."""

    def __init__(self, *, width: int, height: int, socket_path: str, cwd: str, env: dict[str, str]) -> None:
        self._size, self._socket, self._cwd, self._env = (width, height), socket_path, cwd, env
        self.restarts = -1
        self.out_fd = self._in_fd = -1
        self.wake_at: float | None = None
        self._idle: Callable[[bool], None] | None = None
        self._deadline = 0.0
        self._failures = 0
        self._start()

    def _start(self) -> None:
        in_read, self._in_fd = os.pipe()
        self.out_fd, out_write = os.pipe()
        width, height = self._size
        argv = ["tmux", "-S", self._socket, "-C", "new-session", "-x", str(width), "-y", str(height)]
        self._client_pid = os.fork()
        if self._client_pid == 0:
            try:
                os.chdir(self._cwd)
                os.dup2(in_read, 0)
                os.dup2(out_write, 1)
                os.dup2(out_write, 2)
                os.execvpe("tmux", [*argv, "bash", "--login"], self._env)
            finally:
                os._exit(127)
        os.close(in_read)
        os.close(out_write)
        for fd in (self.out_fd, self._in_fd):
            os.set_blocking(fd, False)
        self.restarts += 1
        self._started_at = self._heard_at = monotonic()
        self._buffer = self._unsent = b""
        self._block: tuple[bytes, list[bytes]] | None = None
        self._asked: list[Callable[[list[bytes]], None]] = [lambda lines: None]  # new-session's own block
        self._shell_pid = self._server_pid = 0
        self._previous: bytes | None = None
        self._checking = False
        self._last_output: float | None = None
        self._sent_nothing = False
        self._untyped = (
            0  # send-keys commands not yet carried out: what the pane prints before is no answer to them
        )
        self._rechecks = 0
        self._ask(b"display-message -p '#{pane_pid} #{pid}'", self._set_shell)

    def _set_shell(self, lines: list[bytes]) -> None:
        words = lines[0].split()
        self._shell_pid, self._server_pid = int(words[0]), int(words[-1])

    def _ask(self, command: bytes, answer: Callable[[list[bytes]], None]) -> None:
        assert self.out_fd >= 0, "the terminal has ended"
        if not self._asked:
            self._heard_at = monotonic()
        self._asked.append(answer)
        self._unsent += command + b"\n"
        self._flush()

    def _flush(self) -> None:
        """Write what tmux takes; it reads no more once somebody in the box has stopped it."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._in_fd, self._unsent) :]
        except BlockingIOError:
            self._resend_at = monotonic() + RESEND_S
        except BrokenPipeError:  # the client has ended, and says so on its output
            self._unsent = b""

    @property
    def is_waiting(self) -> bool:
        """Whether somebody waits for the shell."""
        return self._idle is not None

    @property
    def due_at(self) -> float:
        """When `tick` is to be called at the latest."""
        times = [NEVER if self.wake_at is None else self.wake_at]
        if self.out_fd >= 0 and self._asked:
            times.append(self._heard_at + STUCK_S)
            if self._unsent:
                times.append(self._resend_at)
        return min(times)

    # What the event loop calls.

    def pump(self) -> None:
        """Read what tmux says; on its end, give every waiter its answer and start afresh at the next use."""
        try:
            data = os.read(self.out_fd, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            self._ended()
            return
        self._heard_at = monotonic()
        self._flush()
        lines = (self._buffer + data).split(b"\n")
        self._buffer = lines.pop()
        printed = False
        for line in lines:
            if self._block is not None:
                head, body = self._block
                if line[:1] == b"%" and line in (b"%end " + head, b"%error " + head):
                    self._block = None
                    self._asked.pop(0)(body)
                else:
                    body.append(line)
            elif line.startswith(b"%output ") and self._untyped <= 0:
                printed = True
            elif line.startswith(b"%begin "):
                self._block = (line[7:], [])
        if printed:
            self._last_output = monotonic()
            self._rechecks = 0
            if self._idle is not None:
                self.wake_at = min(self._deadline, self._last_output + QUIET_S)

    def tick(self) -> None:
        """See whether the wait is over, and whether tmux still answers; one that does not is killed, which is the end
        of the shell."""
        now = monotonic()
        if self.out_fd >= 0 and self._asked:
            self._flush()
            if now >= self._heard_at + STUCK_S:
                self._heard_at = now
                for pid in {self._server_pid, self._client_pid} - {0}:
                    _kill(pid)
        if self.wake_at is not None and now >= self.wake_at:
            self._see_wait(now)

    def _see_wait(self, now: float) -> None:
        self.wake_at = None
        if self._idle is None:
            return
        if now >= self._deadline:
            self._finish(False)
        elif self._checking or (self._last_output is None and not self._sent_nothing):
            self.wake_at = self._deadline
        elif self._last_output is not None and now < self._last_output + QUIET_S:
            self.wake_at = self._last_output + QUIET_S
        elif not self._shell_sleeps_in_front():
            self._recheck(now)
        elif self._sent_nothing:
            self._finish(True)
        else:
            self._checking = True
            self.wake_at = self._deadline
            self._ask(b"display-message -p '#{cursor_y}'", self._note_cursor)
            self._ask(b"capture-pane -p", self._check_prompt)

    def send_keys(self, keys: bytes, *, max_wait_s: float, done: Callable[[bool], None]) -> None:
        """Type keys (a tmux key name alone is that key); `done(is_idle)` once the shell is idle or the
        wait is over."""
        assert self._idle is None, "one wait at a time"
        if self.out_fd < 0:
            self._failures = 0
            self._start()
        self._idle, self._deadline = done, monotonic() + max_wait_s
        self._sent_nothing = not keys
        self._untyped = -(-len(keys) // KEYS_PER_COMMAND)
        self._last_output = None
        self._rechecks = 0
        for at in range(0, len(keys), KEYS_PER_COMMAND):
            self._ask(b"send-keys -t %0 -- " + quoted(keys[at : at + KEYS_PER_COMMAND]), self._note_typed)
        self.wake_at = monotonic() + QUIET_S if not keys else self._deadline

    def wait_ready(self, *, max_wait_s: float, done: Callable[[bool], None]) -> None:
        """`done(True)` when the first prompt stands."""
        self._idle, self._deadline = done, monotonic() + max_wait_s
        self.wake_at = self._deadline

    def screen(self, done: Callable[[bytes], None]) -> None:
        """The visible pane."""
        self._ask(b"capture-pane -p", lambda lines: done(b"\n".join(lines)))

    def colours(self, done: Callable[[bytes], None]) -> None:
        """The visible pane with the sequences that colour it."""
        self._ask(b"capture-pane -p -e", lambda lines: done(b"\n".join(lines)))

    def capture(self, done: Callable[[bytes], None], *, is_whole: bool) -> None:
        """The pane's whole buffer, or what is visible, each row with its line end."""
        self._ask(
            b"capture-pane -p" + b" -S -" * is_whole,
            lambda lines: done(b"".join(line + b"\n" for line in lines)),
        )

    def new_output(self, done: Callable[[bool, bytes], None]) -> None:
        """`done(True, text from the last line of the buffer seen before on)`, or `done(False, screen)` when
        the old buffer is not found in the new one or nothing is new."""

        def compare(lines: list[bytes]) -> None:
            current, previous = b"\n".join(lines), self._previous
            self._previous = current
            seen = None if previous is None else previous.strip()
            at = -1 if seen is None else current.find(seen)
            new = b"" if seen is None or at < 0 else current[at + seen.rfind(b"\n") + 1 :]
            if seen is not None and at >= 0 and current[at + len(seen) :].strip():
                done(True, new)
            else:
                self.screen(lambda screen: done(False, screen))

        self._ask(b"capture-pane -p -S -", compare)

    # The idle check.

    def _shell_sleeps_in_front(self) -> bool:
        try:
            with open(f"/proc/{self._shell_pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            state, process_group, foreground = fields[0], fields[2], fields[5]
            if state != b"S" or process_group != foreground:
                return False
            if not self._sent_nothing:
                return True
            # Keys that say nothing are a wish to wait: granted for as long as the shell has anything running.
            with open(f"/proc/{self._shell_pid}/task/{self._shell_pid}/children", "rb") as file:
                return not file.read().strip()
        except (OSError, IndexError):
            return False

    def _note_typed(self, lines: list[bytes]) -> None:
        self._untyped -= 1

    def _note_cursor(self, lines: list[bytes]) -> None:
        self._cursor_y = int(lines[0])

    def _check_prompt(self, lines: list[bytes]) -> None:
        self._checking = False
        if self._idle is None:
            return
        now = monotonic()
        is_quiet = self._last_output is None or now >= self._last_output + QUIET_S
        if is_quiet and self._at_prompt(lines) and self._shell_sleeps_in_front():
            self._finish(True)
        else:
            self._recheck(now)

    def _at_prompt(self, lines: list[bytes]) -> bool:
        """Whether the cursor's line ends in a bare prompt, which may follow output that ended without a
        newline."""
        line = lines[self._cursor_y] if self._cursor_y < len(lines) else b""
        _, found, rest = line.rpartition(PROMPT_START)
        return bool(found) and rest.endswith(PROMPT_END) and PROMPT_END + b" " not in rest

    def _recheck(self, now: float) -> None:
        self.wake_at = min(self._deadline, now + RECHECK_S[min(self._rechecks, len(RECHECK_S) - 1)])
        self._rechecks += 1

    def _finish(self, is_idle: bool) -> None:
        done, self._idle, self.wake_at = self._idle, None, None
        assert done is not None
        done(is_idle)

    def _ended(self) -> None:
        """The shell left. A fresh one takes its place, and whoever waits goes on waiting for its prompt."""
        os.close(self.out_fd)
        os.close(self._in_fd)
        self.out_fd = self._in_fd = -1
        waiting, self._asked = self._asked, []
        self._failures = self._failures + 1 if monotonic() < self._started_at + 0.2 else 0
        if self._failures < 3:
            self._start()
        for answer in waiting:
            answer([b"0"])
        self._previous = None
        # Nothing can be started now (no process left to fork, say); the next keys try again.
        if self.out_fd < 0 and self._idle is not None:
            self._finish(False)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, SIGKILL)
    except ProcessLookupError:
        return
