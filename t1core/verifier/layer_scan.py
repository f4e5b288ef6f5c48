"""Looking over what a dead box left, for things that have no business there. Names only: nothing is opened.

A finding quarantines a trial, it does not change its reward: the places where these things could do harm are
not used in grading.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

MAX_ENTRIES = 50_000


def scan_layer(directories: Mapping[str, Path]) -> tuple[str, ...]:
    """Flags: special files, set-uid files, a report written in advance, links in the way of mounts, pytest
    hooks."""
    flags = []
    verifier = directories["/logs"] / "verifier" if "/logs" in directories else None
    if verifier is not None and verifier.is_symlink():
        flags.append("link-on-mount-target:/logs/verifier")
    elif verifier is not None and verifier.is_dir() and any(verifier.iterdir()):
        flags.append("report-in-advance:/logs/verifier")
    seen = 0
    for top, host in directories.items():
        pending = [str(host)]
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    seen += 1
                    where = top + entry.path[len(str(host)) :]
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISDIR(mode):
                        pending.append(entry.path)
                    elif stat.S_ISFIFO(mode) or stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
                        flags.append(f"special-file:{where}")
                    elif stat.S_ISREG(mode) and mode & 0o6000:
                        flags.append(f"set-uid:{where}")
                    elif entry.name in ("conftest.py", "sitecustomize.py", "usercustomize.py"):
                        flags.append(f"test-hook:{where}")
            if seen > MAX_ENTRIES:
                return (*flags[:20], "too-many-files")
    return tuple(flags[:20])
