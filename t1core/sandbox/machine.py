"""What a box over somebody else's machine is made of: commands run one at a time, files in, one archive out.

A container of a Docker daemon and an environment of Harbor's are such machines. They need bash 5, tmux and coreutils.
Whatever comes back of a command comes as text: Harbor's environments decode it, some of them merge stdout and stderr.
So our own scripts answer in base64, behind a mark, and nothing else is believed.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from t1core.sandbox.sandbox import BoxBroken

NEEDS = ("bash", "tmux", "base64", "head", "mktemp", "sleep", "stat", "tar", "du", "timeout")
_MARK = "T1:"

# $1 command, $2 seconds, $3 bytes of output. Each job has a process group of its own. Output goes to files, so that a
# child that lives on holds nobody up; a guard stops a writer that has no end.
_EXEC = r"""
set -m
d=$(mktemp -d /tmp/.t1-XXXXXXXX) || exit 1
bash -c "$1" < /dev/null > "$d/out" 2> "$d/err" & job=$!
( sleep "$2"; : > "$d/late"; kill -9 -- -$job ) & timer=$!
( while sleep 0.2; do for f in out err; do
    [ "$(stat -c %s "$d/$f")" -le "$3" ] || kill -9 -- -$job
  done; done ) & guard=$!
wait $job; rc=$?
kill -9 -- -$timer -$guard
late=0; [ -e "$d/late" ] && late=1
head -c "$3" "$d/out" > "$d/o"; head -c "$3" "$d/err" > "$d/e"
echo $rc $late $(stat -c %s "$d/o")
cat "$d/o" "$d/e"
rm -rf "$d"
"""


@dataclass(frozen=True)
class Finished:
    """A command that ended; `output` is its stdout, which may hold its stderr too."""

    rc: int
    output: str


class Machine(Protocol):
    """Somebody else's machine, started for one box."""

    async def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, within_s: float
    ) -> Finished:
        """Run a program to its end. Raises BoxDied when the machine is gone, BoxTimeout when the program does not end,
        BoxBroken when what runs there has made it take no program any more."""
        ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file to a path whose directory is there. Raises BoxDied."""
        ...

    async def download(self, source: str, target: Path, *, limit_bytes: int) -> bool:
        """Copy a file to the host; False when it is larger than the limit. Raises BoxDied, ValueError for a file that
        is not there."""
        ...

    async def archive(
        self, directories: Sequence[str], *, into: Path, limit_bytes: int, is_end: bool
    ) -> bool:
        """Write those top-level directories to tar archives in the host directory `into`, having ended what runs there
        if it `is_end`; what lies beyond the limit is missing, and False says so. Raises BoxDied, or BoxBroken when
        nothing can be had any more."""
        ...

    async def remove(self) -> None:
        """End the machine and remove it; twice is harmless."""
        ...


def shell(script: str, *args: str) -> list[str]:
    """Command line of one of our scripts, whose stdout `answered` gives back."""
    wrapped = f"exec 2>/dev/null\nprintf '%s' '{_MARK}'\n{{\n{script}\n}} | base64 -w 0\nprintf ';\\n'"
    return ["bash", "-c", wrapped, "t1", *args]


def exec_script(command: str, *, timeout_s: float, limit_bytes: int) -> list[str]:
    """Command line that runs `bash -c command` and answers `code is_late size`, a line break, the stdout of that size
    and the stderr."""
    return shell(_EXEC, command, f"{timeout_s:.3f}", str(limit_bytes))


def answered(finished: Finished, *, box_id: str) -> bytes:
    """What a script said. Raises BoxBroken when the machine's shell or tools no longer do what they are for."""
    _, found, rest = finished.output.partition(_MARK)
    text, ended, _ = rest.partition(";")
    try:
        if not (found and ended):
            raise ValueError("cut short")
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        said = finished.output[-200:].strip()
        raise BoxBroken(
            f"box {box_id}: its shell no longer answers (code {finished.rc}): {said or 'nothing said'}"
        ) from None
