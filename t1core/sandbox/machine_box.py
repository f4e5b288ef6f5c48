"""A box over a `Machine`: commands, terminal and files by its shell, and what is left of it as a layer of this host.

The layer is unpacked inside a bubblewrap box of this host, never by the host itself: it is the agent's archive.
"""

import asyncio
import contextlib
import logging
import math
import shlex
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from t1core.sandbox.bubblewrap import KEPT_DIRECTORIES, BubblewrapSandbox
from t1core.sandbox.channel import CONTROL_DEADLINE_S
from t1core.sandbox.dockerfile import RESERVED, beside
from t1core.sandbox.machine import NEEDS, Finished, Machine, answered, exec_script, shell
from t1core.sandbox.machine_terminal import MachineTerminal
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

SNAPSHOT_DEADLINE_S = 300.0
START_S = 120.0
MAX_NAME = 80
LOOK_EVERY_S, LOOK_WITHIN_S = 5.0, 30.0
ARCHIVE_BYTES = 4 << 20  # what an archive takes beside the files
KILLED = -9
OUTPUT_BYTES = 1 << 20  # of each stream; it passes through other people's servers as one answer
_log = logging.getLogger(__name__)
# The home of the user that commands run as: what the machine says itself, else what its passwd says.
_HOME = """
[ -n "$HOME" ] && printf '%s' "$HOME" && exit
while IFS=: read -r _ _ uid _ _ home _; do
  [ "$uid" = "$(id -u)" ] && printf '%s' "$home" && break
done < /etc/passwd
"""
_SIZES = 'for top; do du -sk -- "$top" 2> /dev/null; done'
_ENV = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": r"root@box:\w# "}


class MachineBox:
    """See `sandbox.Box`. Exit codes are the shell's: 128 and a signal's number for one that a signal ended."""

    def __init__(
        self,
        spec: BoxSpec,
        machine: Machine,
        *,
        workdir: str,
        env: Mapping[str, str],
        unpacker: BubblewrapSandbox,
        on_closed: Callable[["MachineBox"], None],
        entrypoint: Sequence[str] = (),
    ) -> None:
        """`env` is what the image and the task set; `unpacker` opens the box in which the layer is unpacked.
        `entrypoint` is the image's own, where nothing else has started it."""
        self.spec, self.workdir, self._machine = spec, workdir, machine
        self._env, self._unpacker, self._on_closed = dict(env), unpacker, on_closed
        self._tops: tuple[str, ...] = ()
        self._given_bytes = 0  # of the image's own files in what is kept
        self._home, self._entrypoint = "", tuple(entrypoint)
        self._look_at = (
            math.inf
        )  # when the disk is next looked at; not before it is known what the image brings
        self._broken = ""
        self._ending: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        """Make the working directory and look for what a box needs. Raises ValueError for what the image lacks."""
        script = 'mkdir -p -- "$1" || echo "$1"; shift\n'
        script += 'for name; do command -v "$name" > /dev/null || echo "$name"; done'
        try:
            missing = (await self.ask(script, self.workdir, *NEEDS)).decode().split()
        except BoxBroken as error:
            raise ValueError(
                f"box {self.spec.box_id}: its image has no bash with coreutils: {error}"
            ) from None
        if missing:
            raise ValueError(
                f"box {self.spec.box_id}: its image lacks {', '.join(missing)}; install them in the Dockerfile"
            )
        self._home = (await self.ask(_HOME)).decode(errors="replace") or "/"
        self._tops = await self._top_directories()
        self._given_bytes = _total_bytes(await self.ask(_SIZES, *self._tops, within_s=START_S))
        self._look_at = time.monotonic() + LOOK_EVERY_S
        if self._entrypoint:
            await self.ask(beside(self._entrypoint), cwd=self.workdir)

    async def ask(
        self, script: str, *args: str, within_s: float = CONTROL_DEADLINE_S, cwd: str = "/"
    ) -> bytes:
        """Run one of our scripts in the box: what it said. Raises BoxDied, BoxBroken."""
        return answered(
            await self._run(shell(script, *args), within_s=within_s, cwd=cwd), box_id=self.spec.box_id
        )

    async def _run(
        self, argv: Sequence[str], *, within_s: float, cwd: str, env: Mapping[str, str] | None = None
    ) -> Finished:
        if self._ending is not None:
            raise BoxDied(f"box {self.spec.box_id} is gone: it was closed")
        home = {"HOME": self._home} if self._home else {}
        given = {"env": home | _ENV | self._env | dict(env or {}), "cwd": cwd}
        try:
            done = await self._machine.run(argv, **given, within_s=within_s)
            await self._look(given["env"])
            return done
        except BoxTimeout as silent:
            # Where another program still answers, it is what runs there that holds this one up.
            answer = await self._machine.run(shell("echo here"), **given, within_s=CONTROL_DEADLINE_S)
            if answered(answer, box_id=self.spec.box_id) == b"here\n":
                raise BoxBroken(f"{silent}, and it answers otherwise") from None
            raise

    async def _look(self, env: Mapping[str, str]) -> None:
        """Count what it has written, now and then while it is asked for something; raises BoxBroken where that is too
        much, and from then on. Its own tools count, so it can hide files; at its end the archive is cut."""
        if not self._broken and time.monotonic() >= self._look_at:
            self._look_at = math.inf  # one look at a time
            try:
                done = await self._machine.run(
                    shell(_SIZES, *self._tops), env=env, cwd="/", within_s=LOOK_WITHIN_S
                )
                written = _total_bytes(answered(done, box_id=self.spec.box_id)) - self._given_bytes
            except (BoxTimeout, BoxBroken):  # what runs there holds it up
                written = 0
            finally:
                self._look_at = time.monotonic() + LOOK_EVERY_S
            if written > self.spec.storage_mb << 20:
                self._broken = (
                    f"the box has written {written >> 20} MB, its limit is {self.spec.storage_mb} MB"
                )
        if self._broken:
            raise BoxBroken(f"box {self.spec.box_id} is gone: {self._broken}")

    async def exec(
        self, cmd: str, *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> ExecResult:
        """See `Box.exec`."""
        argv = exec_script(cmd, timeout_s=timeout_s, limit_bytes=OUTPUT_BYTES)
        done = await self._run(
            argv, within_s=timeout_s + CONTROL_DEADLINE_S, cwd=cwd or self.workdir, env=env
        )
        head, _, output = answered(done, box_id=self.spec.box_id).partition(b"\n")
        try:
            rc, is_late, size = map(int, head.split())
        except ValueError:
            raise BoxBroken(f"box {self.spec.box_id}: its shell cannot run a command any more") from None
        return ExecResult(KILLED if is_late else rc, output[:size], output[size:], bool(is_late))

    async def terminal(
        self, *, width: int = TERMINAL_WIDTH, height: int = TERMINAL_HEIGHT
    ) -> MachineTerminal:
        """See `Box.terminal`."""
        terminal = MachineTerminal(self.ask)
        await terminal.open(width=width, height=height, cwd=self.workdir)
        return terminal

    async def put(self, source: Path, target: str) -> None:
        """See `Box.put`."""
        mode = "755" if source.stat().st_mode & 0o100 else "644"
        await self.ask('mkdir -p -- "$(dirname -- "$1")"', target)
        await self._machine.upload(source, target)
        if (await self.ask('chmod "$1" -- "$2" && echo done', mode, target)) != b"done\n":
            raise ValueError(f"box {self.spec.box_id}: cannot write {target}")

    async def get(self, source: str, target: Path) -> None:
        """See `Box.get`. The box copies it first, so that no link is followed but by the box itself."""
        place = f"/tmp/.t1-{uuid.uuid4().hex}"
        limit = self.spec.storage_mb << 20
        self._look_at = math.inf  # our own copy is none of what the box has written
        try:
            copying = f"head -c {limit + 1} -- {shlex.quote(source)} > {place}"
            done = await self.exec(copying, timeout_s=CONTROL_DEADLINE_S, cwd="/")
            if done.rc != 0:
                said = done.stderr[-200:].decode(errors="replace").strip()
                raise ValueError(f"box {self.spec.box_id}: cannot read {source}: {said}")
            partial = target.with_name(f".{target.name}.part")
            is_whole = await self._machine.download(place, partial, limit_bytes=limit)
            if is_whole:
                partial.replace(target)
            else:
                partial.unlink(missing_ok=True)
                raise ValueError(
                    f"box {self.spec.box_id}: cannot read {source}: it is larger than {self.spec.storage_mb} MB"
                )
        finally:
            with contextlib.suppress(BoxDied, BoxBroken, BoxTimeout):
                await self.ask('rm -f -- "$1"', place)
            self._look_at = time.monotonic() + LOOK_EVERY_S

    async def _top_directories(self) -> tuple[str, ...]:
        names = (await self.ask("cd / && ls -1d -- */")).decode(errors="replace").split("/\n")
        # First what is graded most, should there be more than may be kept; the box names what is new, so it is bounded.
        workdir = "/" + PurePosixPath(self.workdir).parts[1]
        new = sorted("/" + name for name in names if name and len(name) <= MAX_NAME)
        kept = dict.fromkeys([workdir, *KEPT_DIRECTORIES, *self._tops, *new])
        return tuple(top for top in kept if top[1:] not in RESERVED)[: max(MAX_TOPS, len(self._tops))]

    async def copy(self) -> Layer:
        """See `Box.copy`. What is larger than the box may be is left out."""
        self._tops = await self._top_directories()
        try:
            async with asyncio.timeout(SNAPSHOT_DEADLINE_S):
                return await self._layer(is_end=False)
        except TimeoutError:
            raise BoxDied(f"box {self.spec.box_id}: no copy within {SNAPSHOT_DEADLINE_S:g} s") from None

    async def snapshot(self) -> Layer:
        """See `Box.snapshot`. What is larger than the box may be is left out. Cancelled, it closes the box."""
        if self._ending is not None:
            raise BoxDied(f"box {self.spec.box_id} was closed before its snapshot")
        self._look_at, self._broken = math.inf, ""  # what it has written counts in the archive from here on
        try:
            self._tops = await self._top_directories()
        except BoxBroken:
            _log.warning("box %s: its shell is broken; kept is what it had at the start", self.spec.box_id)
        try:
            async with asyncio.timeout(SNAPSHOT_DEADLINE_S):
                layer = await self._layer(is_end=True)
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise BoxDied(
                    f"box {self.spec.box_id}: no snapshot within {SNAPSHOT_DEADLINE_S:g} s"
                ) from None
            raise
        try:
            await self.close()
        except BaseException:  # nobody gets the layer
            layer.close()
            raise
        return layer

    async def _layer(self, *, is_end: bool) -> Layer:
        with tempfile.TemporaryDirectory(prefix="t1-remains-") as place:
            limit = (self.spec.storage_mb << 20) + self._given_bytes + ARCHIVE_BYTES
            is_whole = True
            try:
                is_whole = await self._machine.archive(
                    self._tops, into=Path(place), limit_bytes=limit, is_end=is_end
                )
            except BoxBroken as error:
                if not is_end:
                    raise
                _log.warning("%s: its layer is empty", error)
            unpacking = BoxSpec(
                box_id=f"{self.spec.box_id}-layer", environment_dir=None, storage_mb=(limit >> 20) + 1
            )
            box = await self._unpacker.open(unpacking, directories=self._tops)
            try:
                for archive in sorted(Path(place).iterdir()):
                    await box.unpack(archive)
            except BoxBroken:
                is_whole = False
            except BaseException:
                await box.close()
                raise
            layer = await box.snapshot(workdir=self.workdir, env=self._env)
            return layer if is_whole else replace(layer, flags=(CUT,))

    async def close(self) -> None:
        """See `Box.close`."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        try:
            await self._machine.remove()
        finally:
            self._on_closed(self)


def _total_bytes(sizes: bytes) -> int:
    """Sum of what du printed, in bytes; a line that it did not print counts nothing."""
    words = [line.split()[:1] for line in sizes.splitlines()]
    return sum(int(word[0]) for word in words if word and word[0].isdigit()) << 10


def refuse_without_room(num_boxes: int, unpacker: BubblewrapSandbox) -> None:
    """Raise SandboxUnavailable when there would be no place for the layers of so many boxes and one more."""
    if num_boxes >= unpacker.num_free:
        raise SandboxUnavailable(
            f"{num_boxes} boxes are open in this sandbox, and so many layers that there is no room for another",
            fix="close layers once they are graded, or run fewer trials at once",
        )
