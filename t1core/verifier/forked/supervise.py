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
LOCKED_IN, PUT_AWAY = b"l", b"p"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def supervise(inner: int, *, request_fd: int, reply_fd: int, phase_fd: int, memory_bytes: int) -> int:
    """Wait for the grade's first process and return its exit code, 0 to 255.

    LOCKED_IN on `request_fd` says that the grade's root stands, and /proc with it: memory is watched from then on.
    PUT_AWAY asks for the tests to be put away and is answered by one byte on `reply_fd`. The word " memory" goes to
    `phase_fd` when memory was what ended a process.
    """
    pidfd = os.pidfd_open(inner)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.register(request_fd, select.POLLIN)
    is_watching = has_said = False
    look_at = 0.0
    while True:
        timeout = max(0.0, look_at - monotonic()) * 1000 + 1 if is_watching else None
        for fd, _ in poller.poll(timeout):
            if fd == pidfd:
                _, status = os.waitpid(inner, 0)
                return os.waitstatus_to_exitcode(status) & 0xFF
            request = os.read(request_fd, 1)
            if request == LOCKED_IN:
                is_watching, look_at = True, monotonic() + LOOK_EVERY_S
            elif request == PUT_AWAY:
                namespaces.unmount("/tests")
                os.write(reply_fd, b"x")
            if request != LOCKED_IN:  # nothing more is asked for; what else comes is not ours
                poller.unregister(request_fd)
        if is_watching and monotonic() >= look_at:
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
