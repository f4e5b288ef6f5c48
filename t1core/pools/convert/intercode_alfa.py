"""InterCode-ALFA: 300 requests in English, each with two bash commands that fulfil it, over five small file systems.

The data are those of the package `icalfa` (extra `icalfa`), whose files are read and whose code is never imported.
There, one command is judged by what it changes and prints beside what the first gold command does, by a language model
or by similar words. Here an agent works in the box and leaves what its command prints in /answer/output.txt; two tests
rebuild the file system, run each gold command in it, and ask for the same files and the same output as either of them.
That is stricter: an output that means the same and reads otherwise fails.

| there                                     | here                                                            |
|-------------------------------------------|-----------------------------------------------------------------|
| working directory /                       | /app, with the set-up script that many requests speak of        |
| an image with the host tools of Ubuntu    | the tools of this machine                                       |
| files as old as the image                 | files made by the set-up have a fixed date, else `ls -l` changes |
| golds that fetch, or look at the machine  | converted too; the audit says which of them do not hold         |
"""

import importlib.metadata
import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t1core.pools.convert.directory import write_task

EXTRA = "icalfa"
_PLACES = {1: ("/testbed",), 2: ("/system",), 3: ("/workspace", "/backup"), 4: (), 5: ("/testbed",)}
_TESTS = '''"""The gold commands of one request, run in a file system made anew, beside what the agent left."""

import hashlib
import os
import shutil
import subprocess

import pytest

PLACES = {places!r}
GOLD = {gold!r}
OUTPUT = "/answer/output.txt"
FIXED = "2024-04-29 00:00"


def tree():
    found = {{}}
    for place in PLACES:
        for parent, directories, names in os.walk(place):
            for name in directories + names:
                path = os.path.join(parent, name)
                status = os.lstat(path)
                content = b""
                if os.path.islink(path):
                    content = os.readlink(path).encode()
                elif os.path.isfile(path) and not name.endswith(".gz"):
                    content = open(path, "rb").read()
                found[path] = (oct(status.st_mode), hashlib.sha256(content).hexdigest())
    return found


def make_anew():
    for place in PLACES:
        for name in os.listdir(place) if os.path.isdir(place) else ():
            path = os.path.join(place, name)
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
    shutil.copy("/tests/{setup}", "/app/{setup}")
    subprocess.run(["bash", "/app/{setup}"], cwd="/app", capture_output=True)
    for place in PLACES:
        subprocess.run(["find", place, "-mtime", "-1", "-exec", "touch", "-h", "-d", FIXED, "{{}}", "+"])


def printed(text):
    return [line.rstrip() for line in text.rstrip().splitlines()]


@pytest.fixture(scope="module")
def left():
    assert os.path.isfile(OUTPUT), "nothing was answered"
    return tree(), printed(open(OUTPUT, errors="replace").read())


@pytest.fixture(scope="module")
def wanted(left):
    found = []
    for gold in GOLD:
        make_anew()
        done = subprocess.run(
            ["bash", "-c", gold], cwd="/app", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=20, errors="replace", text=True,
        )
        found.append((tree(), printed(done.stdout)))
    return found


def test_the_files_are_as_a_gold_command_leaves_them(left, wanted):
    assert left[0] in [files for files, _ in wanted]


def test_the_output_is_that_of_a_gold_command(left, wanted):
    assert left[1] in [output for _, output in wanted]
'''
_DATED = "find {place} -mtime -1 -exec touch -h -d '2024-04-29 00:00' {{}} +"


@dataclass(frozen=True)
class Request:
    """One request of a file system, with what sets that up."""

    system: int
    query: str
    gold: tuple[str, ...]
    difficulty: int
    setup: str
    setup_name: str


def find_package() -> Path:
    """Where the installed package lies. ValueError where it does not."""
    found = importlib.util.find_spec(EXTRA)
    if found is None or not found.submodule_search_locations:
        raise ValueError(
            "the package icalfa is not installed: pip install 't1core[icalfa]', or name its folder"
        )
    return Path(found.submodule_search_locations[0])


def package_version() -> str:
    """The installed version, "" where only a folder was named."""
    try:
        return importlib.metadata.version(EXTRA)
    except importlib.metadata.PackageNotFoundError:
        return ""


def intercode_alfa_tasks(source: Path) -> Iterator[tuple[str, Request]]:
    """Names and requests of the package's data, in its order. ValueError for a folder that does not hold them."""
    for system in _PLACES:
        data = source / "assets" / "datasets" / f"nl2bash_fs_{system}.json"
        setup = source / "assets" / "docker" / f"setup_nl2b_fs_{system}.sh"
        for path in (data, setup):
            if not path.is_file():
                raise ValueError(f"{source} is not the package icalfa: {path.relative_to(source)} is missing")
        for number, row in enumerate(json.loads(data.read_text())):
            gold = tuple(dict.fromkeys(row[key].strip() for key in ("gold", "gold2") if row.get(key)))
            name = f"icalfa-{system}-{number:03d}"
            yield (
                name,
                Request(system, row["query"].strip(), gold, row["difficulty"], setup.read_text(), setup.name),
            )


def convert_intercode_alfa(request: Request, target: Path, *, about: dict[str, Any]) -> None:
    """Write one task."""
    places = _PLACES[request.system]
    dockerfile = "FROM ubuntu:noble-20240429\n"
    dockerfile += "".join(f"WORKDIR {place}\n" for place in (*places, "/answer", "/app"))
    dockerfile += (
        f"COPY {request.setup_name} /app/\nRUN bash /app/{request.setup_name} > /dev/null 2>&1 || true\n"
    )
    dockerfile += "".join(f"RUN {_DATED.format(place=place)}\n" for place in places)
    free = " and ".join((*places, "/app"))
    instruction = (
        f"{request.query}\n\nDo it with a shell command, from the directory /app. Leave what it prints, with errors, "
        f"in /answer/output.txt, which is empty where it prints nothing. Change nothing else in {free}.\n"
    )
    solution = """#!/bin/bash
cd /app
bash -c "$(cat /solution/command)" > /answer/output.txt 2>&1 < /dev/null
exit 0
"""
    write_task(
        target,
        texts={
            "instruction.md": instruction,
            f"environment/{request.setup_name}": request.setup,
            "environment/Dockerfile": dockerfile,
            "solution/solve.sh": solution,
            "solution/command": request.gold[0] + "\n",
            f"tests/{request.setup_name}": request.setup,
            "tests/test_outputs.py": _TESTS.format(
                places=(*places, "/app"), gold=request.gold, setup=request.setup_name
            ),
        },
        metadata=about
        | {"family": f"file system {request.system}", "level": request.difficulty + 1, "split": "heldout"},
        agent_timeout_s=120.0,
        verifier_timeout_s=90.0,
    )
