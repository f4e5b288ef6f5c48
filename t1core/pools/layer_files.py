"""What a dead box's layer holds, told apart by digests: which files a solution wrote, and whether two layers differ.

Everything in a layer was written by code that is not trusted: no link is followed, no special file is opened. Times are
left out, and so is what lies in /tmp and /logs, where a solution keeps its scratch.
"""

import hashlib
import os
import stat
from collections.abc import Mapping

from t1core.sandbox.sandbox import Layer

_SCRATCH = ("/tmp", "/logs")


def layer_files(layer: Layer) -> Mapping[str, str]:
    """Path in the box -> digest of a file's mode and bytes, a link's target, or a directory's mode."""
    found: dict[str, str] = {}
    for top, directory in layer.directories.items():
        if top in _SCRATCH:
            continue
        for place, directories, names in os.walk(directory):
            inside = top + place[len(str(directory)) :]
            for name in (*directories, *names):
                found[f"{inside}/{name}"] = _digest(f"{place}/{name}")
    return found


def written_files(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Paths that are new or different in `after`, directories left out, in order."""
    return sorted(
        path for path, digest in after.items() if before.get(path) != digest and not digest.startswith("d")
    )


def _digest(path: str) -> str:
    status = os.lstat(path)
    mode = f"{status.st_mode & 0o777:o}"
    if stat.S_ISLNK(status.st_mode):
        return f"l {os.readlink(path)}"
    if stat.S_ISDIR(status.st_mode):
        return f"d {mode}"
    if not stat.S_ISREG(status.st_mode):
        return f"? {stat.S_IFMT(status.st_mode):o}"
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        return f"f {mode} {hashlib.file_digest(file, 'sha256').hexdigest()}"
