"""What watches a grade from outside its pid namespace, where nothing of the grade can see or signal it.

The supervisor shares the grade's user and mount namespaces and keeps the capabilities that the grade gave up.
It puts the tests away once pytest has read them, so that programs which the tests start cannot look the
answers up, and it kills the largest process when the grade as a whole uses too much memory.
"""

import os
import select
import signal
from time import monotonic

from t1core.verifier.forked import namespaces

LOOK_EVERY_S = 0.5
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def supervise(inner: int, *, request_fd: int, reply_fd: int, phase_fd: int, memory_bytes: int) -> int:
    """Wait for the grade's first process and return its exit code, 0 to 255.

    One byte on `request_fd` asks for the tests to be put away and is answered by one on `reply_fd`. The word
    " memory" goes to `phase_fd` when memory was what ended a process.
    """
    pidfd = os.pidfd_open(inner)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.register(request_fd, select.POLLIN)
    has_said = False
    look_at = monotonic() + LOOK_EVERY_S
    while True:
        for fd, _ in poller.poll(max(0.0, look_at - monotonic()) * 1000 + 1):
            if fd == pidfd:
                _, status = os.waitpid(inner, 0)
                return os.waitstatus_to_exitcode(status) & 0xFF
            if os.read(request_fd, 1):
                namespaces.unmount("/tests")
                os.write(reply_fd, b"x")
            poller.unregister(request_fd)
        if monotonic() >= look_at:
            look_at = monotonic() + LOOK_EVERY_S
            if spare_memory(memory_bytes) and not has_said:
                has_said = True
                os.write(phase_fd, b" memory")


def spare_memory(memory_bytes: int, *, proc: str = "/proc") -> bool:
    """Kill the process that holds most of its own when all under `proc` together hold more than `memory_bytes`."""
    sizes = {}
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                with open(f"{proc}/{name}/statm", "rb") as file:
                    _, resident, shared, *_ = file.read().split()
                sizes[name] = (int(resident) - int(shared)) * _PAGE_BYTES
            except (OSError, ValueError):
                continue
    if sum(sizes.values()) <= memory_bytes:
        return False
    largest = max(sizes, key=lambda name: sizes[name])
    try:
        process = os.open(f"{proc}/{largest}", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)  # its number here is another one
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True
