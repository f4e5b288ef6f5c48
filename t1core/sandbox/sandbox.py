"""The sandbox contract: what a box is, whatever kind holds it.

    sandbox.open(spec) -> box: exec, terminal, put, get
                            -> copy -> layer                it lives on; its files as they are now, to be graded
                            -> close                        killed, its files gone
                            -> snapshot -> layer -> close   killed, its files there to be graded

A box is killed as a whole: when `close` or `snapshot` returns, no process of it is left.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

TERMINAL_WIDTH, TERMINAL_HEIGHT = 160, 40
MAX_TOPS = 48  # top-level directories kept where the box itself names them
CUT = "cut-at-storage-limit"  # flag of a layer that is not whole since its box wrote more than it may


class SandboxUnavailable(RuntimeError):
    """This machine cannot hold such a box: `missing` says what it lacks, `fix` the command that provides
    it."""

    def __init__(self, missing: str, *, fix: str) -> None:
        super().__init__(f"{missing}. Fix: {fix}")
        self.missing, self.fix = missing, fix

    def __reduce__(self) -> tuple[Any, ...]:
        """An exception is pickled by its message alone, which says too little to make it anew in another process."""
        return functools.partial(type(self), fix=self.fix), (self.missing,)


class BoxDied(RuntimeError):
    """The box is gone while it was needed: killed from inside, by a limit, or with its host."""


class BoxBroken(RuntimeError):
    """What runs in the box has made it useless: passed a limit that ends a box, or taken away its terminal for good.
    Its own doing, so the box's files, which can still be had by `snapshot`, are what it is judged by."""


class BoxTimeout(RuntimeError):
    """The box did not answer within a control call's deadline."""


@dataclass(frozen=True)
class BoxSpec:
    """What to open.

    `environment_dir` holds a Dockerfile (a subset is understood) and its files; None is an empty workspace.
    `workdir` is where shells start unless the Dockerfile says otherwise. `docker_image`, `num_gpus`, `cpus` and
    `user` are what the task asks for: a kind refuses those it cannot honour. A box that `is_for_tests` becomes what
    separate tests see, and need not hold the tests themselves. Limits: `memory_mb` of data for each
    process and resident for the box, `storage_mb` for its writable directories together, `max_file_mb` for
    one file.
    """

    box_id: str
    environment_dir: Path | None
    workdir: str = "/app"
    env: Mapping[str, str] = field(default_factory=dict)
    memory_mb: int = 1024
    storage_mb: int = 1024
    max_processes: int = 128
    max_file_mb: int = 256

    docker_image: str = ""
    num_gpus: int = 0
    cpus: float | None = None
    user: str = ""
    is_for_tests: bool = False


@dataclass(frozen=True)
class ExecResult:
    """A finished command. `rc` is negative for a signal; output beyond the limit was dropped and its
    writer stopped."""

    rc: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


@dataclass(frozen=True)
class Layer:
    """What a dead box leaves: its writable directories on the host, owned by `uid`.

    `directories` maps a path in the box (`/app`) to a path on the host. Everything in them was written by the
    agent: never follow links there, never execute, never import. `env` is what the Dockerfile and the task set in the
    box. With `is_overlay` they lie over the image's own directories of the same names. `close` removes the files.
    """

    box_id: str
    path: Path
    directories: Mapping[str, Path]
    uid: int
    workdir: str
    env: Mapping[str, str]
    cpu_s: float
    on_close: Callable[[], None] = field(repr=False, compare=False)
    is_overlay: bool = False
    flags: tuple[str, ...] = ()  # what the grader should say of it

    def close(self) -> None:
        """Remove the layer's files and give its place back to the sandbox; twice is harmless, and closing the
        sandbox does it too. Nothing may run as `uid` any more."""
        self.on_close()


class Terminal(Protocol):
    """A terminal in the box: a login shell in tmux."""

    async def send_keys(self, keys: str, *, max_wait_s: float) -> bool:
        """Type `keys` as tmux would (text, or one key name such as `C-c`) and wait until the shell's prompt
        is back and the pane is quiet, at most `max_wait_s`. True when the shell is idle. Raises BoxDied, BoxBroken,
        BoxTimeout."""
        ...

    async def screen(self) -> str:
        """The visible pane, trailing blank lines removed."""
        ...

    async def colours(self) -> str:
        """The visible pane with the sequences that colour it (SGR), trailing blank lines removed."""
        ...

    async def capture(self, *, is_whole: bool) -> str:
        """The pane as tmux prints it, blank rows included: its whole buffer, or what is visible."""
        ...

    async def incremental(self) -> str:
        """The observation of a turn: what is new since the last call, or the screen when that cannot be
        told."""
        ...


class Box(Protocol):
    """A live box."""

    async def exec(
        self, cmd: str, *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> ExecResult:
        """Run `bash -c cmd`. On timeout its process group is killed and `timed_out` is set. Raises
        BoxDied, BoxBroken."""
        ...

    async def terminal(self, *, width: int = TERMINAL_WIDTH, height: int = TERMINAL_HEIGHT) -> Terminal:
        """Open the box's terminal; one a box."""
        ...

    async def put(self, source: Path, target: str) -> None:
        """Copy a host file to a path in the box."""
        ...

    async def get(self, source: str, target: Path) -> None:
        """Copy a file of the box to the host. Raises ValueError when it cannot be read, or is larger than the box may
        write."""
        ...

    async def copy(self) -> Layer:
        """Its writable directories as they are now, beside the box, which goes on meanwhile and afterwards. Raises
        SandboxUnavailable when there is no place for them, BoxDied, BoxBroken."""
        ...

    async def snapshot(self) -> Layer:
        """Kill the box and hand over its writable directories, also of one that is broken."""
        ...

    async def close(self) -> None:
        """Kill the box and remove what it wrote. Idempotent."""
        ...


class Sandbox(Protocol):
    """Opens boxes."""

    async def open(self, spec: BoxSpec) -> Box:
        """Raises SandboxUnavailable, ValueError for an environment this kind cannot honour, BoxDied, BoxBroken,
        BoxTimeout."""
        ...

    async def close(self) -> None:
        """Close every box still open."""
        ...
