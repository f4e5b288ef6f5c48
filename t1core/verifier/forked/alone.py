"""pytest for a task's own script: run apart from the working directory, and alone when the report is written.

A program of the agent's that the tests have started, and that lives on, could write to the report once pytest
has; so it is killed before.
"""

import os
import sys
from collections.abc import Iterable

import pytest

SIGSTOP, SIGKILL = 19, 9


class Alone:
    """Ends every other process before the report is written."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """All but this process and those that wait for it; stopped first, so that none can start another."""
        spared = set(lineage())
        for signal in (SIGSTOP, SIGSTOP, SIGKILL):
            for name in os.listdir("/proc"):
                if name.isdigit() and int(name) not in spared:
                    try:
                        os.kill(int(name), signal)
                    except ProcessLookupError:
                        continue


def lineage() -> Iterable[int]:
    """This process and its ancestors within the namespace."""
    pid = os.getpid()
    while pid:
        yield pid
        with open(f"/proc/{pid}/stat", "rb") as file:
            pid = int(file.read().rpartition(b")")[2].split()[1])


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
