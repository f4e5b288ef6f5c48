"""pytest for a task's own script: run apart from the working directory, and alone when the report is written.

A program of the agent's that the tests have started, and that lives on, could write to the report once pytest
has; so it is killed before.
"""

import contextlib
import os
import sys
import time
from collections.abc import Generator, Iterable

import pytest

SIGSTOP, SIGCONT, SIGKILL = 19, 18, 9


class Alone:
    """Ends every other process before the report is written."""

    @pytest.hookimpl(
        wrapper=True, tryfirst=True
    )  # the report's own hook comes first among those that wrap nothing
    def pytest_sessionfinish(self) -> Generator[None]:
        """All but this process and those that wait for it. They are stopped first, all in one call that no fork slips
        past (a list of them is old by the time it is read); what is stopped starts nothing. Their end is awaited: one
        that is killed in the middle of a write still finishes it.
        """
        spared = set(lineage())
        try:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, SIGSTOP)
            while others := [pid for pid in living() if pid not in spared]:
                for pid in others:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, SIGKILL)
                time.sleep(0.001)
        finally:
            for pid in spared:
                os.kill(pid, SIGCONT)
        return (yield)


def living() -> Iterable[int]:
    """Processes of the namespace that have not ended; what has, and is not yet reaped, is left out."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (state := _stat(int(name))) and state[0] not in (b"Z", b"X"):
            yield int(name)


def lineage() -> Iterable[int]:
    """This process and its ancestors within the namespace."""
    pid = os.getpid()
    while pid:
        yield pid
        pid = int(_stat(pid)[1])


def _stat(pid: int) -> list[bytes]:
    """What stands after a process's name: its state, its parent and so on; [] when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def programs(payload: str) -> dict[str, str]:
    """Shell scripts by which a task's script reaches this module, from the payload at a path."""
    code = f"import sys; sys.path.append({payload!r}); from t1core.verifier.forked.alone import main; main()"
    run = f'exec /opt/t1/bin/python3 -I -c "{code}"'
    python = (
        "#!/bin/sh\n"
        f'if [ "$1" = -m ] && [ "$2" = pytest ]; then shift 2; {run} "$@"; fi\n'
        'exec /opt/t1/bin/python3 "$@"\n'
    )
    return {"pytest": f'#!/bin/sh\n{run} "$@"\n', "python3": python, "python": python}


def main() -> None:
    """argv: pytest's arguments."""
    sys.exit(pytest.main(sys.argv[1:], plugins=[Alone()]))
