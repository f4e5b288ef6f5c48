"""Keeping figures: SVG and PNG that are the same bytes for the same data, and a manifest of where each came
from.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from t1core.view.style import Picture


def save_figure(figure: Picture, path: Path | str) -> dict[str, str]:
    """Write `<path>.svg` and `<path>.png`, each whole or not at all; returns their SHA-256 by suffix."""
    digests = {}
    for suffix, content in (("svg", figure.svg()), ("png", figure.png())):
        _replace(Path(f"{path}.{suffix}"), content)
        digests[suffix] = hashlib.sha256(content).hexdigest()
    return digests


def keep_figure(
    figure: Picture,
    *,
    folder: Path | str,
    name: str,
    frame: pd.DataFrame,
    notebook: str,
    parameters: Mapping[str, Any],
    commit: str | None,
) -> None:
    """Save a figure into `folder` and enter it in the folder's manifest.json.

    The entry names the notebook, its parameters and the commit, and holds hashes of the input frame and of
    the files, so that "the data changed" and "the style changed" can be told apart.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "manifest.json"
    entries = json.loads(manifest.read_text()) if manifest.exists() else {}
    entries[name] = {
        "notebook": notebook,
        "parameters": dict(parameters),
        "commit": commit,
        "frame_sha256": frame_digest(frame),
        "files_sha256": save_figure(figure, folder / name),
    }
    _replace(manifest, (json.dumps(dict(sorted(entries.items())), indent=2) + "\n").encode())


def frame_digest(frame: pd.DataFrame) -> str:
    """SHA-256 of a frame's values, names and order; floats to nine significant digits."""
    return hashlib.sha256(frame.to_csv(index=False, float_format="%.9g").encode()).hexdigest()


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
