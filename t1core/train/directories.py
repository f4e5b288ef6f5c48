"""Directories of weights: whose they are, and writing one whole or not at all."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch.distributed as dist

from t1core.model.checkpoint import HfDirectory
from t1core.rl.hl_gauss import ValueBins
from t1core.store.atomic import naming_full_disk
from t1core.train.checkpoint_directory import recovered

VALUE_HEAD = "value_head.weight"
VALUE_BINS_FILE = "value_bins.json"


def refuse_shared_directory(
    *, actor: str | os.PathLike | None, critic: str | os.PathLike | None, field: str
) -> None:
    """ValueError if actor and critic name one directory, however it is spelt (trailing slash, link, relative
    path, another mount of it)."""
    if not actor or not critic:
        return
    is_one = resolved(actor) == resolved(critic)
    if not is_one and os.path.exists(actor) and os.path.exists(critic):
        is_one = os.path.samefile(actor, critic)
    if is_one:
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


def stored_value_bins(path: str | os.PathLike) -> ValueBins | None:
    """The bins of a saved critic's HL-Gauss head; None for a scalar head."""
    file = Path(path) / VALUE_BINS_FILE
    return ValueBins(**json.loads(file.read_text())) if file.is_file() else None


def refuse_other_head(path: str | os.PathLike, *, bins: ValueBins | None, field: str) -> None:
    """ValueError if the critic saved at `path` has another kind of head, or other bins, than `bins` asks for."""
    stored = stored_value_bins(path)
    if stored != bins:
        raise ValueError(
            f"{field}={os.fspath(path)!r} has {_head(stored)} and the settings ask for {_head(bins)}: set critic_head "
            "and its bins to what was saved, or start cold"
        )


def write_value_bins(path: Path, bins: ValueBins | None) -> None:
    """Say beside a critic's weights what its head's outputs mean; a scalar head leaves no such file."""
    file = path / VALUE_BINS_FILE
    if bins is None:
        file.unlink(missing_ok=True)
        return
    partial = path / f".{VALUE_BINS_FILE}.partial"
    partial.write_text(json.dumps(asdict(bins)))
    sync(partial)
    partial.replace(file)


def _head(bins: ValueBins | None) -> str:
    return (
        "a scalar head"
        if bins is None
        else f"an hl_gauss head of {bins.num} bins from {bins.low} to {bins.high}"
    )


@contextmanager
def written_whole(directory: str | os.PathLike) -> Iterator[Path]:
    """A scratch directory beside `directory`, visible to all ranks, that takes its place when the block ends
    well.

    Every rank must enter. Rank 0 creates, syncs and renames; a block that fails leaves what stood there
    before, and so does a process that is killed, at the latest when `recovered` has put it back. DiskFull when it did
    not fit, whatever the library that met it has made of that.
    """
    target = Path(resolved(directory))
    scratch = target.with_name(f".{target.name}.partial")
    if dist.get_rank() == 0:
        recovered(target)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
    dist.barrier()
    try:
        with naming_full_disk(target):
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
