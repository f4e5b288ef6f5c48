"""Journals: append-only JSON lines, each with its schema version, read while they grow.

Numbers that JSON lacks travel as the strings "NaN", "Infinity" and "-Infinity".
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from t1core.store.atomic import append_line
from t1core.store.schema import SCHEMA_VERSION, check_version


def encode_number(value: float) -> float | str:
    """A JSON number, or the name of one that JSON lacks."""
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def append_entry(path: Path, entry: Mapping[str, Any]) -> None:
    """Append one entry as a line of its own. DiskFull leaves the journal as it was."""
    append_line(path, json.dumps({"schema_version": SCHEMA_VERSION, **entry}, allow_nan=False))


def read_entries(path: Path, *, offset: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """(entry, offset after it) for each complete line from a byte offset on; an unfinished last line is left."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            entry = json.loads(line)
            check_version(entry.pop("schema_version", None), path=path)
            yield entry, offset
