"""A pool's index: one JSON line a task behind a header line, read line by line and never as a whole.

| field                                                      | from                                                   |
|------------------------------------------------------------|--------------------------------------------------------|
| task_id, path, family, split, level, test_names            | the task's directory                                   |
| content_hash                                               | its files' names, executable bits and bytes            |
| verifier                                                   | `verifier_of`: counted, declared or binary             |
| agent_timeout_s, verifier_timeout_s, memory_mb, storage_mb | budgets that task.toml declares; null where it does not |
| source, licence                                            | metadata.source and metadata.licence                   |
| nop_passed                                                 | measured: tests that the untouched workspace passes    |
| quality_rank                                               | measured: place in the order of an audit, from 1       |

What was measured is kept when a pool is indexed again, for as long as a task's content is the same.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args, overload

import numpy as np

from t1core.records.task import Task
from t1core.tasks.harbor import SCRIPT_TEST, load_task

INDEX_NAME = "index.jsonl"
INDEX_VERSION = 2  # 1 had neither verifier, budgets, source, licence nor quality_rank

Verifier = Literal["counted", "declared", "binary"]
VERIFIER_KEY = "verifier_kind"  # in the metadata of a task.toml


@dataclass(frozen=True)
class Entry:
    """A task's line. `path` is relative to the pool; `nop_passed` and `quality_rank` are None until measured."""

    task_id: str
    path: str
    family: str
    split: str
    level: int | None
    test_names: tuple[str, ...]
    content_hash: str
    nop_passed: tuple[str, ...] | None = None
    verifier: Verifier = "counted"
    agent_timeout_s: float | None = None
    verifier_timeout_s: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    source: str = ""
    licence: str = ""
    quality_rank: int | None = None

    @property
    def num_tests(self) -> int:
        return len(self.test_names)


class Entries(Sequence[Entry]):
    """Entries of an index file, each parsed when asked for: what is held is eight bytes a task.

    The file is mapped, so an index that is replaced meanwhile is still read as it was.
    """

    def __init__(self, lines: mmap.mmap, offsets: np.ndarray) -> None:
        """`offsets` int64 [num_tasks]: where each task's line begins."""
        self._lines, self._offsets = lines, offsets

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> "Entries": ...
    def __getitem__(self, place: int | slice) -> "Entry | Entries":
        if isinstance(place, slice):
            return Entries(self._lines, self._offsets[place])
        start = int(self._offsets[place])
        return _entry(self._lines[start : _line_end(self._lines, start)])


@dataclass(frozen=True)
class Index:
    """An index that was passed through once. `splits` has the entries of each, in index order."""

    entries: Sequence[Entry]
    splits: Mapping[str, Sequence[Entry]]
    families: tuple[str, ...]


def open_index(path: Path) -> Index:
    """Pass through an index file. ValueError, with the way out, for one that is damaged or of another version."""
    offsets: list[int] = []
    splits: dict[str, list[int]] = {}
    families: set[str] = set()
    try:
        with path.open("rb") as file:
            lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start = _line_end(lines, 0) + 1
        version = int(json.loads(lines[:start])["schema_version"])
        if version != INDEX_VERSION:
            remedy = "update t1core" if version > INDEX_VERSION else "index the pool again"
            raise _OtherVersion(
                f"{path} has schema version {version}, not the {INDEX_VERSION} that this t1core reads; {remedy}"
            )
        while start < len(lines):
            end = _line_end(lines, start)
            entry = _entry(lines[start:end])
            offsets.append(start)
            splits.setdefault(entry.split, []).append(start)
            families.add(entry.family)
            start = end + 1
    except _OtherVersion:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged ({type(error).__name__}: {error}); remove it and index the pool again"
        ) from error

    def entries(starts: list[int]) -> Entries:
        return Entries(lines, np.array(starts, dtype=np.int64))

    return Index(
        entries(offsets),
        {name: entries(splits[name]) for name in sorted(splits)},
        tuple(sorted(families)),
    )


def scan_index(directory: Path) -> Index:
    """An index made in memory, where there is no file of it: every task is read."""
    entries = tuple(scan(directory))
    names = sorted({entry.split for entry in entries})
    return Index(
        entries,
        {name: tuple(entry for entry in entries if entry.split == name) for name in names},
        tuple(sorted({entry.family for entry in entries})),
    )


def write_index(
    directory: Path | str,
    *,
    nop_passed: Mapping[str, tuple[str, ...]] | None = None,
    quality_ranks: Mapping[str, int] | None = None,
    measured_on: Mapping[str, str] | None = None,
) -> Path:
    """Read every task under a directory and write its index, whole or not at all.

    `nop_passed` maps task ids to the tests that pass on the untouched workspace, `quality_ranks` to the place in an
    audit's order, `measured_on` to the content that both were measured on, where it may have changed since: then they
    count as left out. What an earlier index has of a task that they leave out is kept while its content hash holds.
    Raises ValueError for a directory without tasks, and for a task that cannot be read.
    """
    from t1core.store.atomic import write_atomic  # pandas with it, which readers do without

    directory = Path(directory)
    known = _measured(directory / INDEX_NAME)
    lines = [json.dumps({"kind": "t1core task index", "schema_version": INDEX_VERSION})]
    for entry in scan(directory):
        before = known.get(entry.content_hash, entry)
        is_same = (measured_on or {}).get(entry.task_id, entry.content_hash) == entry.content_hash
        new_passed, new_ranks = (nop_passed or {}, quality_ranks or {}) if is_same else ({}, {})
        measured = replace(
            entry,
            nop_passed=new_passed.get(entry.task_id, before.nop_passed),
            quality_rank=new_ranks.get(entry.task_id, before.quality_rank),
        )
        lines.append(json.dumps(asdict(measured)))
    if len(lines) == 1:
        raise ValueError(f"pool {directory} is empty: no directory in it has a task.toml; nothing to index")
    write_atomic(directory / INDEX_NAME, [f"{line}\n".encode() for line in lines])
    return directory / INDEX_NAME


def content_hash(task_directory: Path) -> str:
    """Hex SHA-256 over relative paths, executable bits and bytes of a task's files, without caches."""
    root = str(task_directory)
    files: list[tuple[str, str]] = []
    for place, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name != "__pycache__"]
        files += ((f"{place}/{name}"[len(root) + 1 :], f"{place}/{name}") for name in names)
    digest = hashlib.sha256()
    for name, path in sorted(files):
        if not os.path.isfile(path):  # a link into nothing
            continue
        with open(path, "rb") as file:
            data, mode = file.read(), os.fstat(file.fileno()).st_mode
        digest.update(f"{name}\0{bool(mode & 0o100)}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def scan(directory: Path) -> Iterator[Entry]:
    """Entries of tasks under a directory, by path; what lies in a task is none. ValueError for a name that two have."""
    paths: dict[str, Path] = {}
    for place in sorted(_task_directories(directory)):
        path = place.relative_to(directory)
        entry = _entry_of(load_task(place), path=path)
        if entry.task_id in paths:
            raise ValueError(f"pool {directory}: {path} and {paths[entry.task_id]} share a name; rename one")
        paths[entry.task_id] = path
        yield entry


def verifier_of(task: Task) -> Verifier:
    """What a task's tests can say: `counted` tests in a report, the number that its script has `declared`, or pass and
    fail alone. ValueError for a mark that is none of these."""
    marked = task.metadata.get(VERIFIER_KEY)
    if marked is not None and marked not in get_args(Verifier):
        raise ValueError(
            f"task {task.path}: metadata.{VERIFIER_KEY} {marked!r} is none of {', '.join(get_args(Verifier))}; "
            "leave it out and the tests decide"
        )
    if marked is not None:
        return marked
    if task.test_names == (SCRIPT_TEST,):
        return "declared"
    return "counted" if task.num_tests > 1 else "binary"


def _task_directories(directory: Path) -> Iterator[Path]:
    for place, directories, names in os.walk(directory):
        if "task.toml" in names and Path(place) != directory:
            directories.clear()
            yield Path(place)


def _entry_of(task: Task, *, path: Path) -> Entry:
    return Entry(
        task_id=task.task_id,
        path=path.as_posix(),
        family=task.family,
        split=task.split,
        level=task.metadata.get("level"),
        test_names=task.test_names,
        content_hash=content_hash(task.path),
        verifier=verifier_of(task),
        agent_timeout_s=task.agent_timeout_s,
        verifier_timeout_s=task.verifier_timeout_s,
        memory_mb=task.environment.memory_mb,
        storage_mb=task.environment.storage_mb,
        source=str(task.metadata.get("source", "")),
        licence=str(task.metadata.get("licence", task.metadata.get("license", ""))),
    )


def _measured(index: Path) -> dict[str, Entry]:
    """Entries of an index that is there and can be read, by content; a damaged one has measured nothing."""
    if not index.is_file():
        return {}
    try:
        return {
            entry.content_hash: entry
            for entry in open_index(index).entries
            if entry.nop_passed is not None or entry.quality_rank is not None
        }
    except ValueError:
        return {}


class _OtherVersion(ValueError):
    """An index of another version: not damaged."""


def _line_end(lines: mmap.mmap, start: int) -> int:
    end = lines.find(b"\n", start)
    return len(lines) if end < 0 else end


def _entry(line: bytes) -> Entry:
    row = json.loads(line)
    nop_passed = None if row["nop_passed"] is None else tuple(row["nop_passed"])
    return Entry(**row | {"test_names": tuple(row["test_names"]), "nop_passed": nop_passed})
