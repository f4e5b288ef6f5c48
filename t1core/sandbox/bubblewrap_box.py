"""One live bubblewrap box, seen from the host."""

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from t1core.sandbox.channel import CONTROL_DEADLINE_S, Channel, OutputReader
from t1core.sandbox.dockerfile import Copy, Recipe, beside
from t1core.sandbox.furnish import sources_of, written
from t1core.sandbox.sandbox import (
    CUT,
    MAX_TOPS,
    TERMINAL_HEIGHT,
    TERMINAL_WIDTH,
    BoxBroken,
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
IMAGE_MB = 4096  # of an image's own files that are copied with those of a box over it
_UNTAR = "tar -xf - -C / --no-same-owner --keep-directory-symlink"
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
        open_beside: Callable[..., Awaitable["BubblewrapBox"]],
        packer: Sequence[str],
        on_closed: Callable[["BubblewrapBox"], None],
    ) -> None:
        """`open_beside` opens another box of the same sandbox, which a copy is unpacked in, by the program `packer`;
        `on_closed` is told when the box has ended, and its files are gone or a layer's."""
        self.spec, self.path, self.workdir, self._env = spec, claim.path, workdir, env
        self._process, self._errors_fd = process, errors_fd
        self._claim, self._directories, self._on_closed = claim, dict(directories), on_closed
        self._is_overlay, self._open_beside, self._packer = is_overlay, open_beside, tuple(packer)
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
        if recipe.entrypoint:
            await self.exec(beside(recipe.entrypoint), timeout_s=RUN_DEADLINE_S)

    async def _copy(self, step: Copy, *, environment_dir: Path) -> None:
        for source in sources_of(step, environment_dir=environment_dir):
            if source.is_dir():
                for file in sorted(source.rglob("*")):
                    if file.is_file():
                        await self.put(file, f"{step.target}/{file.relative_to(source)}")
            else:
                await self.put(source, f"{step.target}/{source.name}" if step.into_directory else step.target)
        if step.mode is not None:
            command = f"find {shlex.quote(step.target)} -type f -exec chmod {step.mode:o} {{}} +"
            await self.exec(command, timeout_s=RUN_DEADLINE_S, cwd="/")

    async def exec(
        self, cmd: str, *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> ExecResult:
        """See `Box.exec`."""
        return await self._outcome(self._begin(cmd, env=env, cwd=cwd or self.workdir), timeout_s=timeout_s)

    def _begin(
        self,
        cmd: str,
        *,
        stdin_fd: int | None = None,
        stdout_fd: int | None = None,
        stdout: OutputReader | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
    ) -> "_Command":
        """Order a command; descriptors that are given may be closed at once. What goes to `stdout_fd` is not
        collected."""
        readers = (stdout or OutputReader(), OutputReader())
        pairs = [f"{name}={value}".encode() for name, value in (env or {}).items()]
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        fds = (
            nothing if stdin_fd is None else stdin_fd,
            readers[0].write_fd if stdout_fd is None else stdout_fd,
            readers[1].write_fd,
        )
        try:
            ident, answer = self._channel.start("exec", cwd.encode(), cmd.encode(), *pairs, fds=fds)
        except BaseException:
            for reader in readers:
                reader.close()
            raise
        finally:
            for fd in (nothing, readers[0].write_fd, readers[1].write_fd):
                os.close(fd)
        return _Command(ident, answer, readers)

    async def _outcome(self, command: "_Command", *, timeout_s: float) -> ExecResult:
        timed_out = False
        try:
            try:
                (code,) = await asyncio.wait_for(asyncio.shield(command.answer), timeout_s)
            except TimeoutError:
                timed_out = True
                code = await self._kill(command.ident, command.answer)
            except asyncio.CancelledError:
                with contextlib.suppress(BoxDied):
                    self._channel.start("kill", command.ident)
                raise
            out, err = (reader.finish() for reader in command.readers)
            return ExecResult(int(code), out, err, timed_out)
        finally:
            command.close()

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
            quoted = shlex.quote(target)
            command = f'mkdir -p -- "$(dirname -- {quoted})" && cat > {quoted} && chmod {mode} -- {quoted}'
            done = await self._outcome(
                self._begin(command, stdin_fd=file.fileno()), timeout_s=CONTROL_DEADLINE_S
            )
        if done.rc != 0:
            raise ValueError(f"box {self.spec.box_id}: cannot write {target}: {_tail(done.stderr)}")

    async def get(self, source: str, target: Path) -> None:
        """See `Box.get`. Read by a process of the box, so that no link there can lead outside it."""
        partial = target.with_name(f".{target.name}.part")
        with open(partial, "wb") as file:
            reader = OutputReader(limit_bytes=self.spec.storage_mb << 20, file=file)
            done = await self._outcome(
                self._begin(f"cat -- {shlex.quote(source)}", stdout=reader), timeout_s=CONTROL_DEADLINE_S
            )
        if done.rc == 0 and not reader.is_cut:
            partial.replace(target)
            return
        partial.unlink()
        why = f"it is larger than {self.spec.storage_mb} MB" if reader.is_cut else _tail(done.stderr)
        raise ValueError(f"box {self.spec.box_id}: cannot read {source}: {why}")

    async def unpack(self, archive: Path) -> None:
        """Unpack a tar archive at the box's root, as far as it goes: what cannot be made here (devices), or is cut
        off, is left out. Raises BoxDied, BoxBroken."""
        with open(archive, "rb") as file:
            done = await self._outcome(
                self._begin(_UNTAR, stdin_fd=file.fileno()), timeout_s=UNPACK_DEADLINE_S
            )
        if done.rc != 0:
            _log.warning("box %s: an archive is not whole: %s", self.spec.box_id, _tail(done.stderr))

    async def copy(self) -> Layer:
        """See `Box.copy`. A process of this box packs what one of a fresh box beside it unpacks, so that the host looks
        up nothing in files that are still being written. What this box's own processes keep from being packed is
        missing; what the other one cannot hold is cut off, and its layer says so."""
        if self._ending is not None:
            raise BoxDied(f"box {self.spec.box_id} was closed before it was copied")
        tops = self._tops()
        # Room for what it may hold and for what it may have written since that was counted last.
        storage_mb = 2 * self.spec.storage_mb + (IMAGE_MB if self._is_overlay else 0)
        beside = replace(
            self.spec, box_id=f"{self.spec.box_id}-copy", environment_dir=None, storage_mb=storage_mb
        )
        other = await self._open_beside(beside, directories=tops)
        flags: tuple[str, ...] = ()
        try:
            try:
                await self._pour(tops, into=other)
            except BoxBroken:
                if self._channel.is_dead:
                    raise
                flags = (CUT,)
        except BaseException:
            await other.close()
            raise
        layer = await other.snapshot(workdir=self.workdir, env=self._env)
        return replace(layer, flags=flags)

    async def _pour(self, tops: Sequence[str], *, into: "BubblewrapBox") -> None:
        reads, writes = os.pipe()
        begun: list[_Command] = []
        try:
            try:
                for box, what, fds in (
                    (into, "unpack", {"stdin_fd": reads}),
                    (self, "pack", {"stdout_fd": writes}),
                ):
                    begun.append(box._begin(shlex.join([*self._packer, what, *tops]), **fds))
            finally:
                os.close(reads)
                os.close(writes)
            unpacked, packed = await asyncio.gather(
                into._outcome(begun[0], timeout_s=UNPACK_DEADLINE_S),
                self._outcome(begun[1], timeout_s=UNPACK_DEADLINE_S),
            )
        finally:
            for command in begun:
                command.close()
        if packed.rc != 0 or unpacked.rc != 0:
            said = _tail(packed.stderr) or _tail(unpacked.stderr)
            _log.warning("box %s: its copy is not whole: %s", self.spec.box_id, said)

    def _tops(self) -> list[str]:
        """The top-level directories that are kept; over an overlay those it has written in, a bounded number, since the
        box names them."""
        if not self._is_overlay:
            return list(self._directories)
        workdir = "/" + PurePosixPath(self.workdir).parts[1]
        return list(dict.fromkeys([workdir, *written(self.path / "upper")]))[:MAX_TOPS]

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


@dataclass(frozen=True)
class _Command:
    """A command that was ordered: the order's id, the answer to come, and what collects its output."""

    ident: bytes
    answer: "asyncio.Future[list[bytes]]"
    readers: tuple[OutputReader, OutputReader]

    def close(self) -> None:
        """Collect no more; twice is harmless."""
        for reader in self.readers:
            reader.close()


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
