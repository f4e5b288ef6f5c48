"""Directories of checkpoints: which are whole, which is the newest, which may go. Free of torch, so the driver can ask.

step_0010/
  checkpoint.json        what it holds, and the size of every file: written last, so with it the rest is there
  hf/actor, hf/critic    weights in Hugging Face form (the actor's with its tokenizer)
  trainer.json, actor/, critic/, behaviour_<version>/    the exact state, in Megatron's format; absent in "weights"
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from t1core.store.atomic import write_json

Content = Literal["exact", "weights"]
MANIFEST = "checkpoint.json"
EXACT = "trainer.json"
EXPORT = "hf"
SCHEMA_VERSION = 2
_STEPS = "step_*"


def write_manifest(directory: Path, *, content: Content) -> None:
    """List every file of a finished checkpoint with its size in bytes."""
    sizes = {
        path.relative_to(directory).as_posix(): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    write_json(
        directory / MANIFEST, {"schema_version": SCHEMA_VERSION, "content": content, "files_bytes": sizes}
    )


def damage(directory: Path) -> str | None:
    """What is wrong with a checkpoint (a missing or cut file), or None. Version 1 had no list of files: it appeared
    whole or not at all, and is taken at its word. ValueError for one written by a newer version of this package.
    """
    if not (directory / MANIFEST).is_file():
        return None if (directory / EXACT).is_file() else f"{directory} has neither {MANIFEST} nor {EXACT}"
    manifest = json.loads((directory / MANIFEST).read_text())
    if manifest["schema_version"] > SCHEMA_VERSION:
        raise ValueError(
            f"{directory} was written by a newer version of this package: its schema is "
            f"{manifest['schema_version']}, and this one reads up to {SCHEMA_VERSION}"
        )
    for name, size in manifest["files_bytes"].items():
        path = directory / name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            return f"{path} should have {size} bytes and " + (
                "is missing" if found is None else f"has {found}"
            )
    return None


def newest_whole(root: Path) -> Path | None:
    """The newest undamaged checkpoint among `root`/step_*, or None."""
    return next((path for path in _newest_first(root) if damage(path) is None), None)


def prune(root: Path, *, keep: int) -> list[Path]:
    """Remove all but the newest `keep` undamaged checkpoints of `root`/step_*, and what killed writers left.

    Only what is older than the last one kept goes, so never the only good one, nor a damaged one that somebody may
    want to look at beside newer good ones. Nothing may be writing there. Returns what was removed.
    """
    assert keep >= 1, "a policy that keeps nothing would remove the only good checkpoint"
    for path in [*root.glob(".*.old"), *root.glob(".*.partial")]:
        if not recovered(root / path.name[1:].removesuffix(".old")):
            shutil.rmtree(path, ignore_errors=True)
    kept, removed = 0, []
    for path in _newest_first(root):
        if kept == keep:
            gone = path.with_name(f".{path.name}.partial")
            path.rename(gone)  # a removal that is cut short leaves no half checkpoint under its name
            shutil.rmtree(gone)
            removed.append(path)
        elif damage(path) is None:
            kept += 1
    return removed


def recovered(directory: Path) -> bool:
    """Put the previous checkpoint of this name back where a writer was killed between moving it aside and putting the
    new one in its place. True if that was done.
    """
    old = directory.with_name(f".{directory.name}.old")
    if directory.exists() or not old.exists():
        return False
    old.rename(directory)
    return True


def _newest_first(root: Path) -> Iterator[Path]:
    return iter(sorted((path for path in root.glob(_STEPS) if path.is_dir()), reverse=True))
