"""Atomic writes: a file is either as it was or wholly new, and a full disk says what was missing.

Temp file in the same folder, fsync, rename, fsync of the folder. A reader never sees half a file.
"""

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Buffer, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFull(OSError):
    """No space for a file; names it, what it needs and what is free. What was there before is untouched."""

    @classmethod
    def at(cls, path: Path, *, needed_bytes: int | None = None) -> Self:
        """Of a file or directory that did not fit. Made as an OSError is, so that it crosses processes."""
        free = shutil.disk_usage(path.parent).free
        needs = "does not fit" if needed_bytes is None else f"needs {needed_bytes:,} bytes"
        return cls(
            errno.ENOSPC,
            f"disk full: {path} {needs} and {free:,} bytes are free. Earlier files are intact and stay readable; free "
            "some space, and `t1 resume` goes on with a run that has begun, or set run_root elsewhere",
        )


@contextlib.contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Raise DiskFull naming `path` for whatever a library in the block has made of a disk that is full."""
    try:
        yield
    except Exception as error:
        if _is_disk_full(error):
            raise DiskFull.at(path) from error
        raise


def _is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one it was raised from, says so, by its number or in its text."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if any(os.strerror(code) in str(error) for code in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False


def write_atomic(path: Path, pieces: Sequence[Buffer]) -> None:
    """Replace `path` by the pieces end to end, never joined in memory. DiskFull if they don't fit."""
    needed = sum(memoryview(piece).nbytes for piece in pieces)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            for piece in pieces:
                _write_all(descriptor, memoryview(piece).cast("B"))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull.at(path, needed_bytes=needed) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append one line, synced. On a full disk the part that went in is taken back and DiskFull is raised."""
    data = memoryview((line + "\n").encode())
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        before = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        except OSError as error:
            if error.errno in _FULL:
                os.ftruncate(descriptor, before)
                raise DiskFull.at(path, needed_bytes=len(data)) from error
            raise
    finally:
        os.close(descriptor)


def drop_torn_line(path: Path) -> None:
    """Cut an unfinished last line, which a writer killed in mid-write leaves behind."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        data = file.read()
        if data and not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)


def write_json(path: Path, document: Any) -> None:
    """A JSON document, keys in the order given, strict (no NaN)."""
    write_atomic(path, [(json.dumps(document, indent=2, allow_nan=False) + "\n").encode()])


def sync_folder(folder: Path) -> None:
    """Make renames in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data.nbytes:
        data = data[os.write(descriptor, data) :]
