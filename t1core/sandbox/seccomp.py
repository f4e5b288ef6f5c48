"""The system calls a box may not make, as a BPF program: a deny-list over x86_64 and aarch64.

Denied: mounts and namespaces (also by flags of clone), module and kexec loading, keyrings, bpf, perf,
io_uring, userfaultfd, tracing of other processes, clocks, and sockets other than UNIX, INET, INET6 and
NETLINK (AF_VSOCK is not confined by a network namespace). clone3 answers ENOSYS, so that libc falls back to
clone, whose flags can be read.
"""

import platform
import struct

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NEW_NAMESPACE_FLAGS = 0x7E020000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_ALLOWED_FAMILIES = (1, 2, 10, 16)

# name: (x86_64, aarch64); None where the architecture lacks it.
_DENIED: dict[str, tuple[int | None, int]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "mount_setattr": (442, 442),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
}
_ARCHITECTURES = {  # machine: (audit number, column, clone, clone3, ioctl, socket, socketpair)
    "x86_64": (0xC000003E, 0, 56, 435, 16, 41, 53),
    "aarch64": (0xC00000B7, 1, 220, 435, 29, 198, 199),
}


def program(machine: str | None = None) -> bytes:
    """The filter for `machine` (default: this one), as the kernel's `struct sock_filter[]`.

    Raises ValueError for an architecture without a table.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise ValueError(f"no seccomp table for machine {machine!r}; known: {', '.join(_ARCHITECTURES)}")
    audit, column, clone, clone3, ioctl, socket, socketpair = _ARCHITECTURES[machine]
    out: list[tuple[int, int, int, int]] = []

    def emit(code: int, value: int, *, yes: int = 0, no: int = 0) -> None:
        out.append((code, yes, no, value & 0xFFFFFFFF))

    emit(_LOAD, 4)
    emit(_EQUAL, audit, yes=1)
    emit(_RETURN, _KILL)
    emit(_LOAD, 0)
    if machine == "x86_64":  # the x32 numbering would walk around the list
        emit(_AT_LEAST, 0x40000000, no=1)
        emit(_RETURN, _ERRNO | _ENOSYS)
    for numbers in _DENIED.values():
        if (number := numbers[column]) is not None:
            emit(_EQUAL, number, no=1)
            emit(_RETURN, _ERRNO | _EPERM)
    emit(_EQUAL, clone3, no=1)
    emit(_RETURN, _ERRNO | _ENOSYS)
    emit(_EQUAL, clone, no=4)
    emit(_LOAD, 16)
    emit(_ANY_BIT, _NEW_NAMESPACE_FLAGS, no=1)
    emit(_RETURN, _ERRNO | _EPERM)
    emit(_RETURN, _ALLOW)
    emit(_EQUAL, ioctl, no=5)
    emit(_LOAD, 24)
    emit(_EQUAL, _TIOCSTI, yes=1)
    emit(_EQUAL, _TIOCLINUX, no=1)
    emit(_RETURN, _ERRNO | _EPERM)
    emit(_RETURN, _ALLOW)
    emit(_EQUAL, socket, yes=1)
    emit(_EQUAL, socketpair, no=len(_ALLOWED_FAMILIES) + 2)
    emit(_LOAD, 16)
    for i, family in enumerate(_ALLOWED_FAMILIES):
        emit(_EQUAL, family, yes=len(_ALLOWED_FAMILIES) - i)
    emit(_RETURN, _ERRNO | _EAFNOSUPPORT)
    emit(_RETURN, _ALLOW)
    return b"".join(struct.pack("<HBBI", *row) for row in out)
