"""A pool: a directory of task directories with an index beside them, one JSON line a task.

The index holds what a sampler needs (family, split, level, tests, content hash), so a large pool opens
without reading its tasks; a task itself is read when asked for.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from t1core.records.task import Task
from t1core.tasks.harbor import load_task
from t1core.tasks.order import draws, epoch_order

INDEX_NAME = "index.jsonl"
INDEX_VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One line of the index. `path` is relative to the pool; `nop_passed` is None until measured."""

    task_id: str
    path: str
    family: str
    split: str
    level: int | None
    test_names: tuple[str, ...]
    content_hash: str
    nop_passed: tuple[str, ...] | None = None

    @property
    def num_tests(self) -> int:
        return len(self.test_names)


@dataclass(frozen=True)
class Pool:
    """An opened pool."""

    directory: Path
    entries: tuple[Entry, ...]

    @classmethod
    def open(cls, directory: Path | str) -> "Pool":
        """Read the index, or make it in memory from the task directories where there is none.

        Raises ValueError for a directory that is missing, has no task, or has an index this version can't
        read.
        """
        directory = Path(directory).absolute()
        if not directory.is_dir():
            raise ValueError(f"pool {directory}: no such directory; generate one or give another path")
        index = directory / INDEX_NAME
        entries = tuple(_read_index(index) if index.is_file() else _scan(directory))
        if not entries:
            raise ValueError(
                f"pool {directory} is empty: no directory in it has a task.toml; generate a pool there"
            )
        return cls(directory=directory, entries=entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(sorted({entry.split for entry in self.entries}))

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(sorted({entry.family for entry in self.entries}))

    def split(self, name: str) -> tuple[Entry, ...]:
        """Entries of a split in index order. ValueError when there are none."""
        entries = tuple(entry for entry in self.entries if entry.split == name)
        if not entries:
            raise ValueError(
                f"pool {self.directory}: split {name!r} has no task; it has {', '.join(self.splits)}"
            )
        return entries

    def task(self, entry: Entry) -> Task:
        """Read one task from disk."""
        return replace(load_task(self.directory / entry.path), nop_passed=entry.nop_passed or ())

    def tasks(self, split: str) -> tuple[Task, ...]:
        """Read every task of a split, in index order."""
        return tuple(self.task(entry) for entry in self.split(split))

    def epoch_order(self, split: str, *, seed: int, epoch: int) -> tuple[Entry, ...]:
        """The split's entries in the order of one epoch."""
        entries = self.split(split)
        return tuple(entries[i] for i in epoch_order(len(entries), seed=seed, epoch=epoch))

    def stretch(
        self, split: str, *, seed: int, start: int, count: int, shuffle: bool = True
    ) -> tuple[Task, ...]:
        """The tasks at positions start .. start + count - 1 of the endless sequence of epochs.

        A pure function of its arguments, so a resumed run continues where it was. Without `shuffle` every
        epoch is in index order.
        """
        entries = self.split(split)
        order = draws(len(entries), seed=seed, start=start, number=count, shuffle=shuffle)
        return tuple(self.task(entries[i]) for i in order)

    def changed(self) -> tuple[str, ...]:
        """Ids of tasks whose files no longer have the hash in the index, or are gone."""
        return tuple(
            entry.task_id
            for entry in self.entries
            if not (self.directory / entry.path).is_dir()
            or content_hash(self.directory / entry.path) != entry.content_hash
        )


def write_index(directory: Path | str, *, nop_passed: Mapping[str, tuple[str, ...]] | None = None) -> Path:
    """Read every task under a directory and write its index, atomically.

    `nop_passed` maps task ids to the tests that pass on the untouched workspace, where measured.
    """
    directory = Path(directory)
    measured = nop_passed or {}
    header = {"kind": "t1core task index", "schema_version": INDEX_VERSION}
    lines = [json.dumps(header)]
    for entry in _scan(directory):
        lines.append(json.dumps(asdict(replace(entry, nop_passed=measured.get(entry.task_id)))))
    if len(lines) == 1:
        raise ValueError(f"pool {directory} is empty: no directory in it has a task.toml; nothing to index")
    descriptor, name = tempfile.mkstemp(prefix=f".{INDEX_NAME}.", dir=directory)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o644)
        partial.replace(directory / INDEX_NAME)
    except BaseException:
        partial.unlink()
        raise
    return directory / INDEX_NAME


def content_hash(task_directory: Path) -> str:
    """Hex SHA-256 over relative paths, executable bits and bytes of a task's files, without caches."""
    digest = hashlib.sha256()
    for path in sorted(
        task_directory.rglob("*"), key=lambda path: path.relative_to(task_directory).as_posix()
    ):
        if "__pycache__" in path.parts or not path.is_file():
            continue
        data = path.read_bytes()
        executable = bool(path.stat().st_mode & 0o100)
        digest.update(f"{path.relative_to(task_directory).as_posix()}\0{executable}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def _scan(directory: Path) -> Iterator[Entry]:
    """Entries of the tasks under a directory, by path. A task's name must be its own."""
    paths: dict[str, Path] = {}
    for settings in sorted(directory.rglob("task.toml")):
        path = settings.parent.relative_to(directory)
        task = load_task(settings.parent)
        if task.task_id in paths:
            raise ValueError(f"pool {directory}: {path} and {paths[task.task_id]} share a name; rename one")
        paths[task.task_id] = path
        yield Entry(
            task_id=task.task_id,
            path=path.as_posix(),
            family=task.family,
            split=task.split,
            level=task.metadata.get("level"),
            test_names=task.test_names,
            content_hash=content_hash(settings.parent),
        )


def _read_index(index: Path) -> tuple[Entry, ...]:
    header, *lines = index.read_text().splitlines() or [""]
    try:
        version = int(json.loads(header)["schema_version"])
        entries = tuple(_entry(json.loads(line)) for line in lines) if version <= INDEX_VERSION else ()
    except (ValueError, KeyError, TypeError) as error:
        way_out = f"remove {index} and index the pool again"
        raise ValueError(f"{index} is damaged ({type(error).__name__}: {error}); {way_out}") from error
    if version > INDEX_VERSION:
        raise ValueError(f"{index} has schema version {version}, newer than {INDEX_VERSION}; update t1core")
    return entries


def _entry(row: dict[str, Any]) -> Entry:
    nop_passed = None if row["nop_passed"] is None else tuple(row["nop_passed"])
    return Entry(**row | {"test_names": tuple(row["test_names"]), "nop_passed": nop_passed})
