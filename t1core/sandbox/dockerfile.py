"""The part of a Dockerfile a box can honour without an image: FROM (ignored), WORKDIR, ENV, COPY and RUN
(offline).

Anything else is refused with the reason, rather than skipped in silence.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

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
    "ADD": "use COPY: nothing is fetched or unpacked",
    "EXPOSE": "boxes have no network",
    "VOLUME": "boxes have no volumes",
    "HEALTHCHECK": "boxes run no service",
    "ENTRYPOINT": "boxes run a login shell",
    "CMD": "boxes run a login shell",
}


@dataclass(frozen=True)
class Copy:
    """COPY: host paths relative to the environment directory, to an absolute path in the box."""

    sources: tuple[str, ...]
    target: str
    into_directory: bool


@dataclass(frozen=True)
class Run:
    """RUN: a shell command, with the directory and environment in force at its place."""

    command: str
    workdir: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    """How to furnish a box. `directories` are the writable top-level directories it needs beyond the usual
    ones."""

    steps: tuple[Copy | Run, ...]
    workdir: str
    env: Mapping[str, str]
    directories: tuple[str, ...]


def read_recipe(text: str, *, workdir: str, path: str = "") -> Recipe:
    """Parse a Dockerfile; `path` is what $PATH stands for until it is set. Raises ValueError naming the
    instruction, the reason and the way out."""
    env: dict[str, str] = {}
    outer = {"PATH": path}
    steps: list[Copy | Run] = []
    places = [workdir]
    for word, rest in _instructions(text):
        if word in ("FROM", "LABEL", "MAINTAINER"):
            continue
        if word == "WORKDIR":
            workdir = str(PurePosixPath(workdir, _expand(rest, env)))
            places.append(workdir)
        elif word == "ENV":
            env |= {key: _expand(value, outer | env) for key, value in _pairs(rest)}
        elif word == "COPY":
            step = _copy(_expand(rest, env), workdir)
            places.append(step.target)
            steps.append(step)
        elif word == "RUN":
            if rest.startswith("["):
                raise ValueError(
                    f"Dockerfile: RUN {rest}: the list form is not supported; write a shell command"
                )
            steps.append(Run(rest, workdir, dict(env)))
        else:
            reason = _REFUSED.get(word, "unknown instruction")
            raise ValueError(f"Dockerfile: {word} {rest[:60]}: {reason}; use a sandbox kind that runs images")
    tops = dict.fromkeys(_top(place) for place in places)
    return Recipe(tuple(steps), workdir, env, tuple(tops))


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


def _copy(rest: str, workdir: str) -> Copy:
    words = shlex.split(rest)
    if options := [word for word in words if word.startswith("--")]:
        raise ValueError(f"Dockerfile: COPY {' '.join(options)}: options are not supported; leave them out")
    if len(words) < 2:
        raise ValueError(f"Dockerfile: COPY {rest}: needs a source and a target")
    *sources, target = words
    into = target.endswith("/") or len(sources) > 1 or target in (".", "..")
    return Copy(tuple(sources), str(PurePosixPath(workdir, target)), into)
