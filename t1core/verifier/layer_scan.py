"""Looking over what a dead box left, for things that have no business there. Names only: nothing is opened.

A finding quarantines a trial, it does not change its reward: the places where these things could do harm are
not used in grading, and links into the tests are gone from the graded files.
"""

import errno
import os
import posixpath
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_ENTRIES = 50_000
MAX_FLAGS = 20
MAX_FLAG_CHARS = 300
_HOOKS = ("conftest.py", "sitecustomize.py", "usercustomize.py")
# An installed package may bring a conftest.py of its own, which nobody loads from there.
_INSTALLED = re.compile(r"/(site|dist)-packages/.+/conftest\.py")
_SYSTEM = frozenset(("usr", "bin", "sbin", "lib", "lib32", "lib64", "etc", "opt"))


@dataclass(frozen=True)
class Scan:
    """`flags` name what is odd; `links` are those that may lead to the tests, once these are there."""

    flags: tuple[str, ...]
    links: tuple[str, ...]


def scan_layer(directories: Mapping[str, Path], *, is_overlay: bool = False) -> Scan:
    """Flags: special files, set-uid files, a report written in advance, links in the way of mounts or to the tests,
    pytest hooks, directories that cannot be looked into. With `is_overlay` the mark that a file was removed is none."""
    flags = []
    links = []
    verifier = directories["/logs"] / "verifier" if "/logs" in directories else None
    if verifier is not None and verifier.is_symlink():
        flags.append("link-on-mount-target:/logs/verifier")
    elif verifier is not None and verifier.is_dir() and any(verifier.iterdir()):
        flags.append("report-in-advance:/logs/verifier")
    seen = 0
    for top, host in directories.items():
        pending = [str(host)]
        while pending:
            try:
                with os.scandir(pending.pop()) as entries:
                    for entry in entries:
                        seen += 1
                        where = top + entry.path[len(str(host)) :]
                        found = "" if is_overlay and _is_whiteout(entry) else _kind(entry)
                        if found == "directory":
                            pending.append(entry.path)
                        elif found == "link":
                            target = os.readlink(entry.path)
                            if may_leave(where, target):
                                links.append(where)
                            if target.startswith(("/tests", "/proc")):
                                flags.append(_flag("link-to-tests", where))
                        elif found and not _INSTALLED.search(where):
                            flags.append(_flag(found, where))
            except OSError as error:  # closed to us, or nested deeper than a path may be long
                flags.append(f"unreadable:{errno.errorcode.get(error.errno or 0, error.errno)}")
    if seen > MAX_ENTRIES:
        flags.insert(0, "too-many-files")
    return Scan(tuple(dict.fromkeys(flags))[:MAX_FLAGS], tuple(links))


def may_leave(link: str, target: str) -> bool:
    """Whether a link may lead out of its top-level directory to anything but the system's own.

    `link` is reached without passing another link. A target that goes up after it went down may: what it went down
    to can be a link itself.
    """
    words = [word for word in target.split("/") if word not in ("", ".")]
    downs = [i for i, word in enumerate(words) if word != ".."]
    if downs and ".." in words[downs[0] :]:
        return True
    goal = posixpath.normpath(posixpath.join(posixpath.dirname(link), target)).lstrip("/").split("/")
    return goal[0] != link.split("/")[1] and goal[0] not in _SYSTEM


def _flag(kind: str, where: str) -> str:
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in where)
    return f"{kind}:{shown}"[:MAX_FLAG_CHARS]


def _is_whiteout(entry: os.DirEntry[str]) -> bool:
    found = entry.stat(follow_symlinks=False)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _kind(entry: os.DirEntry[str]) -> str:
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISFIFO(mode) or stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
        return "special-file"
    if stat.S_ISREG(mode) and mode & 0o6000:
        return "set-uid"
    return "test-hook" if entry.name in _HOOKS else ""
