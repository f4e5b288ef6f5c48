"""The part of a Dockerfile a box can honour without an image: WORKDIR, ENV, ARG, COPY, ADD of local files, RUN
(offline) and ENTRYPOINT, which is started beside the shell with a command that never ends, as under Harbor.

What changes nothing there either (FROM, LABEL, CMD, EXPOSE, HEALTHCHECK, VOLUME, STOPSIGNAL) is passed over. Anything
else is refused with the reason, rather than skipped in silence.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from t1core.sandbox.packages import NOTHING, Needs, take_apart

# Top-level directories that belong to the box itself; any other is writable and part of the layer.
RESERVED = frozenset(
    [
        "bin",
        "boot",
        "dev",
        "etc",
        "lib",
        "lib32",
        "lib64",
        "media",
        "mnt",
        "opt",
        "proc",
        "run",
        "sbin",
        "solution",
        "sys",
        "tests",
        "usr",
        "var",
    ]
)
_REFUSED = {
    "USER": "boxes have one user, root",
    "SHELL": "boxes have bash",
    "ONBUILD": "nothing is built on a box",
}
_PASSED_OVER = frozenset(
    ("FROM", "LABEL", "MAINTAINER", "CMD", "EXPOSE", "HEALTHCHECK", "VOLUME", "STOPSIGNAL")
)
_ARCHIVE = re.compile(r"\.(tar(\.\w+)?|t[gbx]z)$", re.IGNORECASE)
_FOR_EVER = ("sh", "-c", "sleep infinity")  # what Harbor gives an image's entrypoint to run


@dataclass(frozen=True)
class Copy:
    """COPY: host paths relative to the environment directory, which may be patterns, to an absolute path in the box;
    `mode` is given to all files if it is not None."""

    sources: tuple[str, ...]
    target: str
    into_directory: bool
    mode: int | None = None


@dataclass(frozen=True)
class Run:
    """RUN: a shell command, with the directory and environment in force at its place."""

    command: str
    workdir: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    """How to furnish a box. `directories` are the writable top-level directories it needs beyond the usual
    ones, `needs` the packages that its system must have, `entrypoint` what is started at the end."""

    steps: tuple[Copy | Run, ...]
    workdir: str
    env: Mapping[str, str]
    directories: tuple[str, ...]
    needs: Needs = NOTHING
    entrypoint: tuple[str, ...] = ()


def beside(entrypoint: Sequence[str]) -> str:
    """Shell command that starts an image's entrypoint and does not wait for it."""
    return f"setsid {shlex.join((*entrypoint, *_FOR_EVER))} > /dev/null 2>&1 < /dev/null &"


def read_recipe(text: str, *, workdir: str, path: str = "", tests_in: str = "") -> Recipe:
    """Parse a Dockerfile; `path` is what $PATH stands for until it is set. What is copied to `tests_in` ("": nothing
    is) is left out: it is there in a grade. Raises ValueError naming the instruction, the reason and the way out."""
    env: dict[str, str] = {}
    arguments: dict[str, str] = {}
    outer = {"PATH": path}
    steps: list[Copy | Run] = []
    places, first = [workdir], workdir
    needs, entrypoint = NOTHING, ()
    for word, rest in _instructions(text):
        if word in _PASSED_OVER:
            continue
        known = arguments | env
        if word == "WORKDIR":
            workdir = str(PurePosixPath(workdir, _expand(rest, known)))
            if not _is_below(workdir, tests_in):
                places.append(workdir)
        elif word == "ENV":
            env |= {key: _expand(value, outer | arguments | env) for key, value in _pairs(rest)}
        elif word == "ARG":
            name, _, value = rest.partition("=")
            arguments[name.strip()] = _expand(" ".join(shlex.split(value)), known)
        elif word in ("COPY", "ADD"):
            step = _copy(_expand(rest, known), workdir, word=word)
            if not _is_below(step.target, tests_in):
                places.append(step.target)
                steps.append(step)
        elif word == "RUN":
            command, needed = take_apart(
                " ".join(map(shlex.quote, _words(rest))) if rest[:1] == "[" else rest
            )
            needs += needed
            if command:
                steps.append(Run(command, first if _is_below(workdir, tests_in) else workdir, known))
        elif word == "ENTRYPOINT":
            entrypoint = _words(rest) if rest[:1] == "[" else ("/bin/sh", "-c", rest)
        elif word == "USER" and rest.partition(":")[0] in ("root", "0"):
            continue
        else:
            reason = _REFUSED.get(word, "unknown instruction")
            raise ValueError(f"Dockerfile: {word} {rest[:60]}: {reason}; use a sandbox kind that runs images")
    tops = dict.fromkeys(_top(place) for place in places)
    ends_in = first if _is_below(workdir, tests_in) else workdir
    return Recipe(tuple(steps), ends_in, env, tuple(tops), needs, entrypoint)


def _is_below(path: str, top: str) -> bool:
    return bool(top) and PurePosixPath(path).is_relative_to(top)


def _words(text: str) -> tuple[str, ...]:
    """The list form of an instruction."""
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f'Dockerfile: {text[:60]}: not a list of texts such as ["a", "b"]')
    return tuple(words)


def _top(path: str) -> str:
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or ".." in parts or parts[1] in RESERVED:
        raise ValueError(f"Dockerfile: {path}: not under a writable directory such as /app, /root or /tmp")
    return "/" + parts[1]


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\[ \t]*\n", " ", "\n".join(lines))
    out = []
    for line in joined.splitlines():
        word, _, rest = line.strip().partition(" ")
        if "<<" in rest and word.upper() in ("RUN", "COPY"):
            raise ValueError(
                f"Dockerfile: {line.strip()[:60]}: here-documents are not supported; COPY a file instead"
            )
        out.append((word.upper(), rest.strip()))
    return out


def _pairs(rest: str) -> list[tuple[str, str]]:
    words = shlex.split(rest)
    if words and "=" in words[0]:
        return [(key, value) for key, _, value in (word.partition("=") for word in words)]
    key, _, value = rest.partition(" ")
    return [(key, value.strip())]


def _expand(text: str, env: Mapping[str, str]) -> str:
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: env.get(m[1] or m[2], ""), text)


def _copy(rest: str, workdir: str, *, word: str) -> Copy:
    mode = None
    while rest.startswith("--"):
        option, _, rest = rest.partition(" ")
        name, _, value = option.partition("=")
        if name == "--chmod" and re.fullmatch("[0-7]{3,4}", value):
            mode = int(value, 8)
        elif not (name == "--link" or (name == "--chown" and set(value.split(":")) <= {"root", "0"})):
            raise ValueError(f"Dockerfile: {word} {option}: boxes cannot honour it; leave it out")
    rest = rest.strip()
    words = _words(rest) if rest[:1] == "[" else shlex.split(rest)
    if len(words) < 2:
        raise ValueError(f"Dockerfile: {word} {rest}: needs a source and a target")
    *sources, target = words
    if word == "ADD" and (
        odd := [name for name in sources if urlsplit(name).scheme or _ARCHIVE.search(name)]
    ):
        raise ValueError(f"Dockerfile: ADD {odd[0]}: nothing is fetched or unpacked; use COPY and RUN tar")
    into = target.endswith("/") or len(sources) > 1 or target in (".", "..")
    return Copy(tuple(sources), str(PurePosixPath(workdir, target)), into, mode)
