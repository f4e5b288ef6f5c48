"""A pool: a directory of task directories with an index beside them, one JSON line a task.

The index holds what a sampler needs (family, split, level, tests, content hash), so a pool of any size opens in a pass
over one file; an entry is parsed and a task read when asked for. Without an index every task is read at opening.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from t1core.records.task import Task
from t1core.tasks.harbor import load_task
from t1core.tasks.index import INDEX_NAME, Entry, Index, content_hash, open_index, scan_index
from t1core.tasks.order import draws


@dataclass(frozen=True)
class Pool:
    """An opened pool."""

    directory: Path
    index: Index

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
        opened = open_index(index) if index.is_file() else scan_index(directory)
        if not opened.entries:
            raise ValueError(
                f"pool {directory} is empty: no directory in it has a task.toml; generate a pool there"
            )
        return cls(directory=directory, index=opened)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries, in index order."""
        return self.index.entries

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.index.splits)

    @property
    def families(self) -> tuple[str, ...]:
        return self.index.families

    def split(self, name: str) -> Sequence[Entry]:
        """Entries of a split in index order. ValueError when there are none."""
        entries = self.index.splits.get(name)
        if entries is None:
            raise ValueError(
                f"pool {self.directory}: split {name!r} has no task; it has {', '.join(self.splits)}"
            )
        return entries

    def task(self, entry: Entry) -> Task:
        """Read one task from disk."""
        return replace(load_task(self.directory / entry.path), nop_passed=entry.nop_passed or ())

    def tasks(self, split: str) -> Iterator[Task]:
        """Read the tasks of a split one by one, in index order. ValueError when there are none."""
        return map(self.task, self.split(split))

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
