"""TMax's records: one a task, with a description, an Apptainer definition and the tests of the final state.

A record is a row of a parquet or JSON-lines file, or a directory with task.json beside container.def and
test_final_state.py. Its tests were made to pass or fail as one, so they stay so: they are run by a script of their own
that writes 0 or 1, and the task is marked binary.

Of the definition, %post is run while the box is furnished, without its lines that fetch (a box has no network; what
they would have installed has to be on the host), %environment becomes ENV, and %files is refused where the file is not
beside the record.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from t1core.pools.convert.directory import NotConverted, write_task
from t1core.tasks.index import VERIFIER_KEY

HOME = "/home/user"  # where TMax's agents work
_SCRIPT = """#!/bin/bash
if pytest -q -p no:cacheprovider /tests/test_final_state.py; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
_FETCHES = re.compile(r"^\s*(sudo )?(apt-get|apt|pip3?|python3? -m pip|curl|wget|npm|git clone)\b")
_EXPORT = re.compile(r"^\s*export (\w+)=(.*)$")
# A record, and the directory with its files where there is one.
Record = tuple[Mapping[str, Any], Path | None]


def tmax_tasks(source: Path) -> Iterator[tuple[str, Record]]:
    """Names and records of a parquet or JSON-lines file, or of the directories below a directory."""
    if source.is_dir():
        for path in sorted(source.rglob("task.json")):
            texts = {
                field: (path.parent / name).read_text()
                for field, name in (
                    ("container_def", "container.def"),
                    ("test_final_state", "test_final_state.py"),
                )
                if (path.parent / name).is_file()
            }
            yield path.parent.name, (json.loads(path.read_text()) | texts, path.parent)
    elif source.suffix == ".parquet":
        import pyarrow.parquet

        for batch in pyarrow.parquet.ParquetFile(source).iter_batches(batch_size=256):
            yield from ((str(row["task_id"]), (row, None)) for row in batch.to_pylist())
    else:
        with source.open() as lines:
            for row in map(json.loads, lines):
                yield str(row["task_id"]), (row, None)


def convert_tmax(record: Record, target: Path, *, about: dict[str, Any]) -> None:
    """Write one task. Raises NotConverted."""
    row, place = record
    for field in ("description", "test_final_state"):
        if not str(row.get(field) or "").strip():
            raise NotConverted(f"the record has no {field}")
    definition = _sections(str(row.get("container_def") or ""))
    dockerfile = f"FROM scratch\nWORKDIR {HOME}\n"
    for line in filter(None, map(str.strip, definition.get("files", []))):
        source, _, inside = line.partition(" ")
        if place is None or (beside := _beside(place, source)) is None:
            raise NotConverted(f"%files wants {source}, which is not beside the record")
        (target / "environment").mkdir(parents=True, exist_ok=True)
        if beside.is_dir():
            shutil.copytree(beside, target / "environment" / Path(source).name, symlinks=True)
        else:
            shutil.copy2(beside, target / "environment" / Path(source).name)
        dockerfile += f"COPY {Path(source).name} {inside.strip() or HOME}\n"
    for line in definition.get("environment", []):
        if match := _EXPORT.match(line):
            dockerfile += f"ENV {match[1]}={match[2]}\n"
    post, dropped = _without_fetching(definition.get("post", []))
    texts = {
        "instruction.md": str(row["description"]).strip() + "\n",
        "tests/test_final_state.py": str(row["test_final_state"]),
        "tests/test.sh": _SCRIPT,
    }
    if any(map(str.strip, post)):
        texts["environment/post.sh"] = "#!/bin/bash\n" + "\n".join(post) + "\n"
        dockerfile += "COPY post.sh /tmp/post.sh\nRUN bash /tmp/post.sh; rm -f /tmp/post.sh\n"
    write_task(
        target,
        texts=texts | {"environment/Dockerfile": dockerfile},
        metadata=about
        | {"family": str(row.get("domain") or "unknown"), VERIFIER_KEY: "binary"}
        | {"complexity": str(row.get("task_complexity") or ""), "not_fetched": "; ".join(dropped)[:300]},
    )


def _beside(place: Path, source: str) -> Path | None:
    """What lies below the record's directory under that name, links followed; None for what does not."""
    found, root = (place / source).resolve(), place.resolve()
    return found if root in found.parents and found.exists() else None


def _sections(definition: str) -> dict[str, list[str]]:
    """Lines of an Apptainer definition by section, without the per cent sign."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in definition.splitlines():
        if match := re.match(r"%(\w+)", line):
            lines = found.setdefault(match[1], [])
        else:
            lines.append(line)
    return found


def _without_fetching(lines: list[str]) -> tuple[list[str], list[str]]:
    """Lines of a script with those that fetch replaced by nothing done, continued ones as a whole; and these."""
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).split("\n")
    dropped = [" ".join(line.split()) for line in joined if _FETCHES.match(line)]
    return [":" if _FETCHES.match(line) else line for line in joined], dropped
