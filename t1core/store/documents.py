"""One JSON value in a file of its own, with the version of its schema."""

import json
from pathlib import Path
from typing import Any

from t1core.store.atomic import write_json
from t1core.store.schema import SCHEMA_VERSION, check_version


def write_document(path: Path, key: str, content: Any) -> None:
    """Write `content` under `key`, whole or not at all. ValueError for NaN or infinity: encode numbers that may be."""
    write_json(path, {"schema_version": SCHEMA_VERSION, key: content})


def read_document(path: Path, key: str) -> Any:
    """What `write_document` wrote. NewerSchema for a file of a later version."""
    document = json.loads(path.read_text())
    check_version(document.get("schema_version"), path=path)
    return document[key]
