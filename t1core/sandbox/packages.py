"""Packages that a Dockerfile installs, where nothing can be fetched: a box runs over a system that has them, or is
refused with what is missing.

A RUN that calls apt-get or pip is taken apart at its `&&`: the calls that fetch become `Needs`, the rest is run.
"""

import importlib.metadata
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

_APT = r"(?:sudo )?(?:\w+=\S+ )*(?:apt-get|apt)(?: -[-\w=]+)*"
_IDLE = re.compile(
    rf"{_APT} (?:update|upgrade|clean|autoclean|autoremove)(?: -[-\w=]+)*|rm -rf? /var/lib/apt/lists/?\*?"
)
_INSTALL = re.compile(rf"{_APT} install((?: [-\w.+=:~]+)+)")
_PIP = re.compile(r"(?:\w+=\S+ )*(?:python3? -m )?pip3? install((?: [-\w.+=<>~!,\[\]'\"]+)+)")
_OPTION_WITH_VALUE = ("-r", "--requirement", "-e", "--editable", "-c", "--constraint", "-i", "--index-url")
# What Harbor's own agent records a terminal with: no task needs it.
_NOT_NEEDED = frozenset(("asciinema",))


@dataclass(frozen=True)
class Needs:
    """Packages by their manager's spelling: Debian's with an optional `=version`, Python's as requirements."""

    debian: tuple[str, ...] = ()
    python: tuple[str, ...] = ()

    def __add__(self, other: "Needs") -> "Needs":
        return Needs(self.debian + other.debian, self.python + other.python)


NOTHING = Needs()


def take_apart(command: str) -> tuple[str, Needs]:
    """What is left to run of a RUN's command, "" for nothing, and what it needs. One that installs from a file or an
    address is left as it is."""
    left: list[str] = []
    needs = NOTHING
    pieces = re.split(r"\s*&&\s*", command.strip())
    if not all(map(_is_whole, pieces)):
        return command, needs
    for written in pieces:
        piece = re.sub(r"\s+", " ", written)
        if match := _INSTALL.fullmatch(piece):
            words = [word for word in match[1].split() if not word.startswith("-")]
            needs += Needs(debian=tuple(word for word in words if word not in _NOT_NEEDED))
        elif (match := _PIP.fullmatch(piece)) and not set(match[1].split()) & set(_OPTION_WITH_VALUE):
            words = [word.strip("'\"") for word in match[1].split() if not word.startswith("-")]
            needs += Needs(python=tuple(words))
        elif not _IDLE.fullmatch(piece):
            left.append(written)  # its blanks may be quoted
    return (command if len(left) == len(pieces) else " && ".join(left)), needs


def _is_whole(piece: str) -> bool:
    """Whether what stands between two `&&` is a command, and they were not quoted."""
    try:
        shlex.split(piece)
    except ValueError:
        return False
    return True


def missing(needs: Needs, *, system: Path) -> tuple[str, ...]:
    """Those that the root directory `system` does not have, or not in that version."""
    debian = _debian(system / "var/lib/dpkg/status") if needs.debian else {}
    python = _python(system) if needs.python else {}
    out = []
    for word in needs.debian:
        name, _, version = word.partition("=")
        found = debian.get(name.partition(":")[0])
        if found is None or (version and found != version):
            out.append(word)
    return (*out, *(word for word in needs.python if not _holds(word, python)))


def _holds(word: str, found: Mapping[str, str]) -> bool:
    try:
        asked = Requirement(word)
    except InvalidRequirement:
        return False
    version = found.get(_plain(asked.name))
    return version is not None and asked.specifier.contains(version, prereleases=True)


@lru_cache(maxsize=4)
def _debian(status: Path) -> Mapping[str, str]:
    """Versions of what is installed, by name; what a package provides counts under that name."""
    out: dict[str, str] = {}
    if not status.is_file():
        return out
    for text in status.read_text(errors="replace").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in text.splitlines() if re.match(r"[A-Z][\w-]*: ", line))
        if fields.get("Status", "").endswith(" installed"):
            provided = re.sub(r"\([^)]*\)|,", " ", fields.get("Provides", "")).split()
            for name in (*provided, fields["Package"]):
                out[name] = fields.get("Version", "")
    return out


@lru_cache(maxsize=4)
def _python(system: Path) -> Mapping[str, str]:
    """Versions of the distributions that the system's own Python finds."""
    places = [
        str(path)
        for pattern in (
            "usr/lib/python3/dist-packages",
            "usr/local/lib/python3*/*-packages",
            "usr/lib/python3*/site-packages",
        )
        for path in system.glob(pattern)
    ]
    return {_plain(each.name): each.version for each in importlib.metadata.distributions(path=places)}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
