"""Keeping figures: SVG and PNG that are the same bytes for the same data, and a manifest of where each came from."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from t1core.view.style import Picture

MANIFEST = "manifest.json"
Change = Literal["same", "new", "data changed", "style changed", "file changed"]


def save_figure(figure: Picture, path: Path | str) -> dict[str, str]:
    """Write `<path>.svg` and `<path>.png`, each whole or not at all; returns their SHA-256 by suffix."""
    content = _rendered(figure)
    for suffix, data in content.items():
        _replace(Path(f"{path}.{suffix}"), data)
    return _digests(content)


def keep_figure(
    figure: Picture,
    *,
    folder: Path | str,
    name: str,
    notebook: str,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, str],
    measured_at: Mapping[str, str],
) -> Change:
    """Save a figure into `folder` and enter it in the folder's manifest.json; returns what has changed by that.

    The entry names the notebook, its parameters, what it read with hashes, and the commits that runs among it were
    measured at. It holds hashes of what was drawn and of the files, so that "the data changed" and "the style changed"
    can be told apart.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    content = _rendered(figure)
    change = _change(figure, content, folder=folder, name=name)
    for suffix, data in content.items():
        _replace(folder / f"{name}.{suffix}", data)
    entries = read_manifest(folder)
    entries[name] = {
        "notebook": notebook,
        "parameters": dict(parameters),
        "inputs_sha256": dict(inputs),
        "measured_at": dict(measured_at),
        "data_sha256": figure.data_sha256,
        "files_sha256": _digests(content),
    }
    _replace(folder / MANIFEST, (json.dumps(dict(sorted(entries.items())), indent=2) + "\n").encode())
    return change


def read_manifest(folder: Path | str) -> dict[str, dict[str, Any]]:
    """The entries by figure; empty where nothing was kept yet."""
    path = Path(folder) / MANIFEST
    return json.loads(path.read_text()) if path.exists() else {}


def change_of(figure: Picture, *, folder: Path | str, name: str) -> Change:
    """What is different now from the kept figure: its data, else how it is drawn, else its files, else nothing."""
    return _change(figure, _rendered(figure), folder=Path(folder), name=name)


def _change(figure: Picture, content: Mapping[str, bytes], *, folder: Path, name: str) -> Change:
    entry = read_manifest(folder).get(name)
    if entry is None:
        return "new"
    if figure.data_sha256 != entry["data_sha256"]:
        return "data changed"
    if _digests(content) != entry["files_sha256"]:
        return "style changed"
    files = {suffix: folder / f"{name}.{suffix}" for suffix in content}
    same = all(file.exists() and file.read_bytes() == content[suffix] for suffix, file in files.items())
    return "same" if same else "file changed"


def _rendered(figure: Picture) -> dict[str, bytes]:
    return {"svg": figure.svg(), "png": figure.png()}


def _digests(content: Mapping[str, bytes]) -> dict[str, str]:
    return {suffix: hashlib.sha256(data).hexdigest() for suffix, data in content.items()}


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
