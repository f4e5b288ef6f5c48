"""Running a test's coroutine against a real sandbox, and looking at the host around it."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.sandbox import BoxSpec


def in_sandbox(
    test: Callable[[BubblewrapSandbox], Awaitable[None]], *, within_s: float = 120, **options
) -> None:
    """Run `test` with a sandbox that is closed afterwards, whatever happens."""

    async def run() -> None:
        sandbox = BubblewrapSandbox(**options)
        try:
            await asyncio.wait_for(test(sandbox), within_s)
        finally:
            await sandbox.close()

    asyncio.run(run())


def spec(box_id: str = "box", **changes) -> BoxSpec:
    """An empty workspace."""
    return BoxSpec(**({"box_id": box_id, "environment_dir": None} | changes))


def host_processes(command: str) -> list[int]:
    """Host pids of processes whose command line is exactly `command`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            except OSError:
                continue
            if words == command.encode().split():
                found.append(int(entry.name))
    return found


def processes_as(uid: int) -> list[str]:
    """Host processes of a box's uid that have not ended; none to tell from the user's own as a plain user."""
    if os.geteuid() != 0:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text()
            except OSError:
                continue
            if int(status.split("Uid:")[1].split()[0]) == uid and "\nState:\tZ" not in status:
                found.append(status.split()[1])
    return found


def uid_of(pid: int) -> int:
    """Real uid of a host process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("Uid:")[1].split()[0])
