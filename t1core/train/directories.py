"""Directories of weights: whose they are, and writing one whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from t1core.model.checkpoint import HfDirectory
from t1core.train.checkpoint_directory import recovered

VALUE_HEAD = "value_head.weight"


def refuse_shared_directory(
    *, actor: str | os.PathLike | None, critic: str | os.PathLike | None, field: str
) -> None:
    """ValueError if actor and critic name one directory, however it is spelt (trailing slash, link, relative
    path)."""
    if actor and critic and resolved(actor) == resolved(critic):
        raise ValueError(
            f"{field}: actor and critic both use {resolved(actor)}; one would overwrite the other, so give "
            "the critic a directory of its own"
        )


def resolved(path: str | os.PathLike | None) -> str:
    """The one spelling of a directory; ValueError for None or ''."""
    if not path or not os.fspath(path).strip():
        raise ValueError("a directory for weights is missing: name one, actor and critic each their own")
    return os.path.realpath(path)


def holds_value_head(path: str | os.PathLike) -> bool | None:
    """True for a critic's weights, False for an actor's, None where there are no weights."""
    if not any(Path(path).glob("*.safetensors")):
        return None
    return VALUE_HEAD in HfDirectory(path)


@contextmanager
def written_whole(directory: str | os.PathLike) -> Iterator[Path]:
    """A scratch directory beside `directory`, visible to all ranks, that takes its place when the block ends
    well.

    Every rank must enter. Rank 0 creates, syncs and renames; a block that fails leaves what stood there
    before, and so does a process that is killed, at the latest when `recovered` has put it back.
    """
    target = Path(resolved(directory))
    scratch = target.with_name(f".{target.name}.partial")
    if dist.get_rank() == 0:
        recovered(target)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
    dist.barrier()
    try:
        yield scratch
    except BaseException:
        if dist.get_rank() == 0:
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    dist.barrier()
    if dist.get_rank() == 0:
        for path in [*scratch.rglob("*"), scratch]:
            sync(path)
        old = target.with_name(f".{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        scratch.rename(target)
        sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    dist.barrier()


def sync(path: Path) -> None:
    """Have the file or directory reach the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
