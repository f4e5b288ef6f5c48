"""The trials in flight, as the writer of a run last saw them: one small file, replaced again and again.

It is no record: a reader that comes late misses nothing, since every trial is stored when its step is over. So it is
renamed into place but not synced.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from t1core.records import TrialInFlight
from t1core.store.schema import SCHEMA_VERSION, check_version


@dataclass(frozen=True)
class InFlight:
    """`at` is when they were seen, Unix seconds."""

    at: float
    trials: tuple[TrialInFlight, ...]


def write_live(path: Path, trials: Sequence[TrialInFlight]) -> None:
    content = {"schema_version": SCHEMA_VERSION, "at": time.time(), "trials": [asdict(one) for one in trials]}
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(content))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_live(path: Path) -> InFlight | None:
    """What was last said, or None for a run that does not say."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    check_version(content["schema_version"], path=path)
    return InFlight(content["at"], tuple(TrialInFlight(**one) for one in content["trials"]))
