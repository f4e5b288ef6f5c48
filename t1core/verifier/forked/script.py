"""A task's own test.sh, run as it stands in a locked-in child."""

import os

VERIFIER_DIR = "/logs/verifier"
MAX_READ_BYTES = 8 << 20
SIGKILL = 9


def run_script(*, report_fd: int, environment: dict[str, str], commands: str) -> int:
    """Run /tests/test.sh, with the directory `commands` first on its path; then, with every other process of the
    namespace dead, copy its report to `report_fd`.

    Returns 1 when reward.txt says that the task is solved, else 0. The script's own exit code says nothing.
    """
    os.makedirs(VERIFIER_DIR, exist_ok=True)
    pid = os.fork()
    if pid == 0:
        os.execve(
            "/bin/bash",
            ["bash", "/tests/test.sh"],
            environment | {"PATH": f"{commands}:{environment['PATH']}"},
        )
    os.waitpid(pid, 0)
    try:
        os.kill(-1, SIGKILL)
        while True:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
    report = _read("ctrf.json")
    while report:
        report = report[os.write(report_fd, report) :]
    try:
        reward = float(_read("reward.txt") or b"0")
    except ValueError:
        reward = 0.0
    return int(reward == 1.0)


def _read(name: str) -> bytes:
    try:
        fd = os.open(f"{VERIFIER_DIR}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(fd, "rb") as file:
        return file.read(MAX_READ_BYTES + 1)
