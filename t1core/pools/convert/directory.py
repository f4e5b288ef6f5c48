"""Writing one task in Harbor's layout."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PROGRAMS = ("tests/test.sh", "solution/solve.sh")


class NotConverted(ValueError):
    """A task that the layout, or a box, cannot hold; says why."""


def write_task(
    directory: Path,
    *,
    texts: Mapping[str, str],
    metadata: Mapping[str, Any],
    agent_timeout_s: float | None = None,
    verifier_timeout_s: float | None = None,
) -> None:
    """Write a task's texts, by path below its directory, and its task.toml. What is there already stays."""
    lines = ['schema_version = "1.4"', "", "[metadata]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in metadata.items() if value not in (None, "")]
    for table, seconds in (("agent", agent_timeout_s), ("verifier", verifier_timeout_s)):
        if seconds is not None:
            lines += ["", f"[{table}]", f"timeout_sec = {float(seconds)!r}"]
    for name, text in (texts | {"task.toml": "\n".join(lines) + "\n"}).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name in _PROGRAMS else 0o644)
