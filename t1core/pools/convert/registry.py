"""Harbor's registries on disk: a registry.json whose data sets name tasks, and the directories that hold them.

A task is looked for below the registry's own directory: at its path, else below a checkout named for its repository. It
is copied as it is; nothing is fetched.
"""

import json
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from t1core.pools.convert.directory import NotConverted


@dataclass(frozen=True)
class Listed:
    """A task that a registry lists: where it may lie, and what it came from."""

    places: tuple[Path, ...]
    source: str


def registry_tasks(source: Path, *, dataset: str = "") -> Iterator[tuple[str, Listed]]:
    """Names and places of the tasks of a registry's data set, NAME or NAME@VERSION; of its only one when none is named.

    Raises ValueError for a file that is no registry, and for a data set that it lacks.
    """
    try:
        datasets = json.loads(source.read_text())
        known = {f"{one['name']}@{one.get('version', '')}": one for one in datasets}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"registry {source} is no list of data sets with names ({type(error).__name__}: {error})"
        ) from error
    chosen = [name for name in known if dataset in ("", name, name.partition("@")[0])]
    if len(chosen) != 1:
        raise ValueError(
            f"registry {source}: data set {dataset!r} names {len(chosen)} of {', '.join(known)}; name one"
        )
    for task in known[chosen[0]]["tasks"]:
        path = PurePosixPath(task["path"])
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"registry {source}: path {str(path)!r} leads out of the registry's directory")
        places = [source.parent / path]
        if url := task.get("git_url"):
            places.append(source.parent / PurePosixPath(url).name.removesuffix(".git") / path)
        came_from = " ".join(str(task[key]) for key in ("git_url", "git_commit_id") if task.get(key))
        yield str(task.get("name") or path.name), Listed(tuple(places), f"{chosen[0]} {came_from}".strip())


def convert_listed(listed: Listed, target: Path, *, about: dict[str, Any]) -> None:
    """Copy one task, with its source and licence in a metadata table of its own. Raises NotConverted."""
    place = next((place for place in listed.places if (place / "task.toml").is_file()), None)
    if place is None:
        looked = " or ".join(map(str, listed.places))
        raise NotConverted(f"not on this disk: no task.toml in {looked}; check its repository out there")
    shutil.copytree(place, target, dirs_exist_ok=True, symlinks=True)
    settings = target / "task.toml"
    text = (place / "task.toml").read_text()
    settings.unlink()  # a link would lead what is written into the source
    try:
        metadata = tomllib.loads(text).get("metadata", {})
    except tomllib.TOMLDecodeError as error:
        raise NotConverted(f"task.toml is not TOML: {error}") from error
    added = {
        name: value
        for name, value in (about | {"source": listed.source}).items()
        if value and name not in metadata
    }
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in added.items())
    head = "[metadata]\n"
    if head in text:
        text = text.replace(head, head + lines, 1)
    elif not metadata:
        text = f"{text.rstrip()}\n\n{head}{lines}"
    settings.write_text(text)
