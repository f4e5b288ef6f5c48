"""Boxes on a machine with few open files, and a scheduler that takes a refusal for a full house.

Runs in a child process, whose limits it lowers. A box here is what a box holds open in its host: four descriptors.
"""

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from t1core.sandbox.descriptors import raise_descriptors
from t1core.sandbox.room import BOX_DESCRIPTORS


@dataclass(frozen=True)
class Opened:
    """`refused`: what the check before the start says, "" where it has nothing against it. `polls`: how often the
    scheduler found no room. `error`: of the last box that did not open."""

    opened: int
    asked: int
    polls: int
    refused: str
    error: str


def open_boxes(num: int, *, soft: int, hard: int, check: bool) -> Opened:
    """Open `num` boxes in a process with these limits on open files; with `check`, look first."""
    command = [sys.executable, "-m", __name__, str(num), str(soft), str(hard), str(int(check))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Opened(**json.loads(done.stdout))


def _open_here(num: int, *, check: bool, polls: int = 5) -> Opened:
    refused = raise_descriptors(num) if check else None
    if refused:
        return Opened(0, num, 0, refused, "")
    held: list[list[int]] = []
    waited, error = 0, ""
    while len(held) < num and waited < polls:
        box: list[int] = []
        try:
            for _ in range(BOX_DESCRIPTORS):
                box.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as reason:
            error = str(reason)
            for descriptor in box:
                os.close(descriptor)
            waited += 1  # "no room now": ask again later
            time.sleep(0.01)
        else:
            held.append(box)
    return Opened(len(held), num, waited, "", error)


if __name__ == "__main__":
    boxes, soft, hard, check = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(json.dumps(asdict(_open_here(boxes, check=bool(check)))))
