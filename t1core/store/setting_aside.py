"""Setting aside what a resumed run will do again: the records of steps after the one it goes on from.

Nothing is overwritten: files go into the folder of the attempt that wrote them, and so do the journals as they were.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from t1core.store.atomic import write_atomic
from t1core.store.journal import read_entries

JOURNALS = ("metrics.jsonl", "failures.jsonl", "survival.jsonl", "scores.jsonl")
_EXPORTS = ("metrics.parquet", "failures.parquet")


@dataclass(frozen=True)
class Standing:
    """The last steps that stand: trained on, collected, evaluated. -1: none."""

    trained: int
    collected: int
    evaluated: int

    def keeps_file(self, path: Path) -> bool:
        """Whether a file of trials or tokens is of a step that stands."""
        kind, _, number = path.stem.partition("_")
        last = {"train": self.collected, "eval": self.evaluated, "step": self.trained}[kind]
        return int(number) <= last

    def keeps_entry(self, journal: str, entry: dict) -> bool:
        """Whether a journal's entry is of a step that stands. What broke an attempt as a whole always is."""
        if journal == "metrics.jsonl":
            return entry["step"] <= (self.trained if entry["kind"] == "train" else self.evaluated)
        if journal == "scores.jsonl":
            return entry["score"]["step"] <= self.evaluated
        return entry["step"] <= self.collected or (journal == "failures.jsonl" and not entry["trial_id"])


def set_aside(run: Path, standing: Standing, *, into: Path) -> int:
    """Move files of later steps, and copies of the journals that lose entries, to `into`. Returns the files moved."""
    later = [
        path
        for folder, pattern in (("trajectories", "*_*.parquet"), ("tokens", "step_*.safetensors"))
        for path in sorted((run / folder).glob(pattern))
        if not standing.keeps_file(path)
    ]
    for path in [*later, *(run / name for name in _EXPORTS if (run / name).exists())]:
        target = into / path.relative_to(run)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    for name in JOURNALS:
        path = run / name
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        entries = [entry for entry, _ in read_entries(path)]
        kept = [line for line, entry in zip(lines, entries, strict=True) if standing.keeps_entry(name, entry)]
        if len(kept) < len(lines):
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, into / name)
            write_atomic(path, kept)
    return len(later)
