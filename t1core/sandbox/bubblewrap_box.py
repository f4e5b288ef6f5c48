"""One live bubblewrap box, seen from the host."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from t1core.sandbox.channel import CONTROL_DEADLINE_S, Channel, OutputReader
from t1core.sandbox.dockerfile import Copy, Recipe
from t1core.sandbox.furnish import written
from t1core.sandbox.sandbox import (
    TERMINAL_HEIGHT,
    TERMINAL_WIDTH,
    BoxDied,
    BoxSpec,
    BoxTimeout,
    ExecResult,
    Layer,
    SandboxUnavailable,
)
from t1core.sandbox.state import Claim, idle

RUN_DEADLINE_S = UNPACK_DEADLINE_S = 120.0
GRACE_S = 3.0
_log = logging.getLogger(__name__)
_NEW = "New Terminal Output:\n\n"
_SCREEN = "Current Terminal Screen:\n\n"


class BubblewrapBox:
    """See `sandbox.Box`."""

    def __init__(
        self,
        spec: BoxSpec,
        *,
        process: subprocess.Popen,
        control: socket.socket,
        errors_fd: int,
        claim: Claim,
        directories: Mapping[str, Path],
        is_overlay: bool,
        workdir: str,
        env: Mapping[str, str],
        on_closed: Callable[["BubblewrapBox"], None],
    ) -> None:
        """`on_closed` is told when the box has ended, and its files are gone or a layer's."""
        self.spec, self.path, self.workdir, self._env = spec, claim.path, workdir, env
        self._process, self._errors_fd = process, errors_fd
        self._claim, self._directories, self._on_closed = claim, dict(directories), on_closed
        self._is_overlay = is_overlay
        self._channel = Channel(control, box_id=spec.box_id, why_dead=self._why_dead)
        self.cpu_s = 0.0  # user and system time of everything that ran in the box; known once it ended
        self._ending: asyncio.Task[None] | None = None
        self._is_layer = False  # the files are to outlive the box

    async def started(self, *, deadline_s: float) -> None:
        """Wait for the control process. Raises BoxTimeout, or SandboxUnavailable with bubblewrap's own
        complaint."""
        try:
            await asyncio.wait_for(self._channel.ready, deadline_s)
        except TimeoutError:
            raise BoxTimeout(f"box {self.spec.box_id}: not up within {deadline_s:g} s") from None
        except BoxDied:
            said = self._said()
            if "bwrap:" in said or "overlay:" in said:
                raise SandboxUnavailable(
                    f"bubblewrap refused to open a box: {said}",
                    fix="run `t1 doctor`, which names the setting that is in the way",
                ) from None
            raise

    async def furnish(self, recipe: Recipe, *, environment_dir: Path | None) -> None:
        """Carry out the recipe from its first RUN on. Raises ValueError naming the step that failed."""
        first_run = next(
            (i for i, step in enumerate(recipe.steps) if not isinstance(step, Copy)), len(recipe.steps)
        )
        for step in recipe.steps[first_run:]:
            if isinstance(step, Copy):
                assert environment_dir is not None
                await self._copy(step, environment_dir=environment_dir)
                continue
            done = await self.exec(step.command, timeout_s=RUN_DEADLINE_S, env=step.env, cwd=step.workdir)
            if done.rc != 0:
                said = _tail(done.stderr or done.stdout)
                raise ValueError(f"Dockerfile: RUN {step.command[:80]} ended with {done.rc}: {said}")

    async def _copy(self, step: Copy, *, environment_dir: Path) -> None:
        for name in step.sources:
            source = (environment_dir / name).resolve()
            if not source.is_relative_to(environment_dir.resolve()) or not source.exists():
                raise ValueError(f"Dockerfile: COPY {name}: no such file in the environment directory")
            if source.is_dir():
                for file in sorted(source.rglob("*")):
                    if file.is_file():
                        await self.put(file, f"{step.target}/{file.relative_to(source)}")
            else:
                await self.put(source, f"{step.target}/{source.name}" if step.into_directory else step.target)

    async def exec(
        self, cmd: str, *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> ExecResult:
        """See `Box.exec`."""
        with open(os.devnull, "rb") as nothing:
            return await self._exec(cmd, stdin_fd=nothing.fileno(), timeout_s=timeout_s, env=env, cwd=cwd)

    async def _exec(
        self, cmd: str, *, stdin_fd: int, timeout_s: float, env: Mapping[str, str] | None, cwd: str | None
    ) -> ExecResult:
        readers = (OutputReader(), OutputReader())
        fds = (stdin_fd, readers[0].write_fd, readers[1].write_fd)
        pairs = [f"{name}={value}".encode() for name, value in (env or {}).items()]
        try:
            try:
                where = (cwd or self.workdir).encode()
                ident, answer = self._channel.start("exec", where, cmd.encode(), *pairs, fds=fds)
            finally:
                for reader in readers:
                    os.close(reader.write_fd)
            timed_out = False
            try:
                (code,) = await asyncio.wait_for(asyncio.shield(answer), timeout_s)
            except TimeoutError:
                timed_out = True
                code = await self._kill(ident, answer)
            except asyncio.CancelledError:
                with contextlib.suppress(BoxDied):
                    self._channel.start("kill", ident)
                raise
            return ExecResult(int(code), readers[0].finish(), readers[1].finish(), timed_out)
        finally:
            for reader in readers:
                reader.close()

    async def _kill(self, ident: bytes, answer: "asyncio.Future[list[bytes]]") -> bytes:
        self._channel.start("kill", ident)
        try:
            (code,) = await asyncio.wait_for(answer, CONTROL_DEADLINE_S)
        except TimeoutError:
            raise BoxTimeout(
                f"box {self.spec.box_id}: a command was not killed within {CONTROL_DEADLINE_S:g} s"
            ) from None
        return code

    async def terminal(
        self, *, width: int = TERMINAL_WIDTH, height: int = TERMINAL_HEIGHT
    ) -> "BubblewrapTerminal":
        """See `Box.terminal`."""
        await self._channel.ask("open", b"%d" % width, b"%d" % height, self.workdir.encode())
        return BubblewrapTerminal(self._channel)

    async def put(self, source: Path, target: str) -> None:
        """See `Box.put`. The bytes go through a process of the box, so that no link there can lead outside
        it."""
        with open(source, "rb") as file:
            mode = "755" if os.fstat(file.fileno()).st_mode & 0o100 else "644"
            quoted = "'" + target.replace("'", "'\\''") + "'"
            command = f'mkdir -p -- "$(dirname -- {quoted})" && cat > {quoted} && chmod {mode} -- {quoted}'
            done = await self._exec(
                command, stdin_fd=file.fileno(), timeout_s=CONTROL_DEADLINE_S, env=None, cwd="/"
            )
        if done.rc != 0:
            raise ValueError(f"box {self.spec.box_id}: cannot write {target}: {_tail(done.stderr)}")

    async def get(self, source: str, target: Path) -> None:
        """See `Box.get`. Raises ValueError when the file cannot be read or is larger than the output
        limit."""
        quoted = "'" + source.replace("'", "'\\''") + "'"
        done = await self.exec(f"cat -- {quoted}", timeout_s=CONTROL_DEADLINE_S, cwd="/")
        if done.rc != 0:
            raise ValueError(f"box {self.spec.box_id}: cannot read {source}: {_tail(done.stderr)}")
        target.write_bytes(done.stdout)

    async def unpack(self, archive: Path) -> None:
        """Unpack a tar archive at the box's root, as far as it goes: what cannot be made here (devices), or is cut
        off, is left out. Raises BoxDied, BoxBroken."""
        with open(archive, "rb") as file:
            done = await self._exec(
                "tar -xf - -C / --no-same-owner --keep-directory-symlink",
                stdin_fd=file.fileno(),
                timeout_s=UNPACK_DEADLINE_S,
                env=None,
                cwd="/",
            )
        if done.rc != 0:
            _log.warning("box %s: an archive is not whole: %s", self.spec.box_id, _tail(done.stderr))

    async def snapshot(self, *, workdir: str = "", env: Mapping[str, str] | None = None) -> Layer:
        """See `Box.snapshot`. `workdir` and `env` are another box's, whose files were unpacked here. Cancelled, it
        closes the box."""
        if self._ending is not None:
            raise BoxDied(f"box {self.spec.box_id} was closed before its snapshot")
        self._is_layer = True
        try:
            await self._ended()
        except asyncio.CancelledError:
            self._is_layer = False
            if self._ending.done():  # too late for it to see that nobody gets the layer
                self._claim.release()
            raise
        return Layer(
            box_id=self.spec.box_id,
            path=self.path,
            directories=written(self.path / "upper") if self._is_overlay else self._directories,
            is_overlay=self._is_overlay,
            uid=self._claim.uid,
            workdir=workdir or self.workdir,
            env=self._env if env is None else env,
            cpu_s=self.cpu_s,
            on_close=self._claim.release,
        )

    async def close(self) -> None:
        """See `Box.close`. After a snapshot this does nothing: the files are the layer's."""
        await self._ended()

    async def _ended(self) -> None:
        """Begin the end, or join it. A caller that is cancelled leaves; the end goes on."""
        if self._ending is None:
            self._channel.close()
            self._ending = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        await self._wait_for_end()
        if not self._is_layer:
            self._claim.release()
        self._on_closed(self)

    async def _wait_for_end(self) -> None:
        """The closed socket ends the control process and with it the namespace, whose CPU time then reaches
        us; a box that will not go that way is killed."""
        pid = self._process.pid
        inner = _children(pid)
        is_watched = bool(inner)
        if not await _exited(os.pidfd_open(pid), within_s=GRACE_S):
            is_watched = False  # it may have had a child since
            os.kill(pid, signal.SIGKILL)  # not Popen.kill, which may reap, and the rusage with it
            await _exited(os.pidfd_open(pid), within_s=None)
        _, status, usage = os.wait4(pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        for pidfd in inner:
            await _exited(pidfd, within_s=None)
        if not is_watched:
            await idle(self._claim.uid)
        os.close(self._errors_fd)

    def _said(self) -> str:
        size = os.fstat(self._errors_fd).st_size
        return os.pread(self._errors_fd, 500, max(0, size - 500)).decode(errors="replace").strip()

    def _why_dead(self) -> str:
        if self._ending is not None:
            return "it was closed"
        return self._said() or "its control process was killed"


class BubblewrapTerminal:
    """See `sandbox.Terminal`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def send_keys(self, keys: str, *, max_wait_s: float) -> bool:
        """See `Terminal.send_keys`."""
        fields = keys.encode(errors="replace"), b"%.4f" % max_wait_s
        (is_idle,) = await self._channel.ask("keys", *fields, deadline_s=max_wait_s + CONTROL_DEADLINE_S)
        return is_idle == b"1"

    async def screen(self) -> str:
        """See `Terminal.screen`."""
        (text,) = await self._channel.ask("screen")
        return text.decode(errors="replace").rstrip()

    async def colours(self) -> str:
        """See `Terminal.colours`."""
        (text,) = await self._channel.ask("colours")
        return text.decode(errors="replace").rstrip()

    async def capture(self, *, is_whole: bool) -> str:
        """See `Terminal.capture`."""
        (text,) = await self._channel.ask("capture", b"%d" % is_whole)
        return text.decode(errors="replace")

    async def incremental(self) -> str:
        """See `Terminal.incremental`."""
        is_new, text = await self._channel.ask("new")
        return (_NEW if is_new == b"1" else _SCREEN) + text.decode(errors="replace").rstrip()


def _tail(output: bytes) -> str:
    return output[-200:].decode(errors="replace").strip()


def _children(pid: int) -> list[int]:
    """pidfds of a process's children: the namespace's first process, whose end is the end of all in it."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            pids = [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []
    out = []
    for child in pids:
        try:
            out.append(os.pidfd_open(child))
        except ProcessLookupError:
            continue
    return out


async def _exited(pidfd: int, *, within_s: float | None) -> bool:
    """Wait for a process's exit, without reaping it; closes the pidfd."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    loop.add_reader(pidfd, lambda: gone.done() or gone.set_result(None))
    try:
        await asyncio.wait_for(gone, within_s)
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
