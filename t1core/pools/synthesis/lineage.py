"""The lineage file: one JSON line a candidate, kept or not, with its parents, what made it, and what the gate found."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from t1core.pools.llm.endpoint import Cost
from t1core.pools.synthesis.candidate import Size
from t1core.store.atomic import append_line, drop_torn_line

LINEAGE_NAME = "lineage.jsonl"
FILE_KIND, FILE_VERSION = "t1core task lineage", 1


@dataclass(frozen=True)
class Step:
    """A candidate's fate. `reason` says why it was not kept: what proposed it, a twin, or the audit's failed checks.
    `content_hash` and `size` are None where there never were files."""

    task_id: str
    round: int
    index: int
    operator: str
    parents: tuple[str, ...]
    origin: Mapping[str, Any]
    is_kept: bool
    reason: str
    failed_checks: tuple[str, ...]
    num_seeds: int
    size: Size | None
    content_hash: str | None
    substance_hash: str | None
    cost: Cost
    audit_s: float

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        size = stored["size"]
        return cls(
            **{
                **stored,
                "parents": tuple(stored["parents"]),
                "failed_checks": tuple(stored["failed_checks"]),
                "size": None if size is None else Size(**size),
                "cost": Cost(**stored["cost"]),
            }
        )


def begin_lineage(path: Path, *, head: Mapping[str, Any]) -> list[Step]:
    """The steps of a file that is gone on with; a new file gets its first line. ValueError for one begun otherwise."""
    drop_torn_line(path)
    whole = {"kind": FILE_KIND, "schema_version": FILE_VERSION, **head}
    if not path.exists() or not path.stat().st_size:
        append_line(path, json.dumps(whole))
        return []
    found, steps = read_lineage(path)
    if changed := [name for name in whole if found.get(name) != whole[name]]:
        name = changed[0]
        raise ValueError(
            f"output {path.parent} was begun with {name} {found.get(name)!r} and now it is {whole[name]!r}; give "
            "another directory, or go on as it was begun"
        )
    return steps


def append_step(path: Path, step: Step) -> None:
    append_line(path, json.dumps(asdict(step)))


def read_lineage(path: Path | str) -> tuple[dict[str, Any], list[Step]]:
    """(first line, every step in order). ValueError for another file."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"lineage {path}: no such file; `t1 pool synthesise` writes one into its output")
    head, *lines = path.read_text().splitlines() or [""]
    try:
        found = json.loads(head)
        if found["kind"] != FILE_KIND or found["schema_version"] > FILE_VERSION:
            raise ValueError(f"it is a {found['kind']!r} of version {found['schema_version']}")
        return found, [Step.from_dict(json.loads(line)) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"lineage {path} cannot be read ({type(error).__name__}: {error}); give the {LINEAGE_NAME} of an output of "
            f"`t1 pool synthesise`, of version {FILE_VERSION} at most"
        ) from error


def of_round(steps: Sequence[Step], number: int) -> Iterator[Step]:
    return (step for step in steps if step.round == number)
