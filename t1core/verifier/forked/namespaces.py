"""System calls for a grading child: fresh namespaces, a root of its own, and no way back.

The child ends in user, mount, pid, net, ipc, uts and cgroup namespaces whose root user is an unprivileged uid
of the host, with the box's few capabilities, a seccomp filter, and a root file system made of read-only binds
plus one tmpfs that dies with it.
"""

import ctypes
import fcntl
import os
import resource
import socket
import struct

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
ALL_NAMESPACES = (
    CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE, MS_SLAVE = 16384, 1 << 18, 1 << 19
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
SECCOMP_MODE_FILTER = 2
KEPT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7)  # chown, dac_override, fowner, fsetid, kill, setgid, setuid
LAST_CAPABILITY = 40
SIGKILL = 9
_CAP_VERSION_3 = 0x20080522
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2). Raises OSError naming the target."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check(result, f"mount {kind or source} on {target}")


def unmount(target: str) -> None:
    """Take a mount away; who has files of it open keeps them. Raises OSError."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def bind_read_only(source: str, target: str) -> None:
    """Bind a tree and make the bind read-only, keeping the flags that the source's mount does not let go."""
    mount(source, target, "", MS_BIND | MS_REC)
    kept = os.statvfs(target).f_flag & (MS_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RELATIME)
    mount("", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | _mount_flags(kept))


def _mount_flags(statvfs_flags: int) -> int:
    pairs = ((MS_NOEXEC, 8), (os.ST_NOATIME, 1024), (os.ST_NODIRATIME, 2048), (os.ST_RELATIME, 1 << 21))
    return sum(flag for have, flag in pairs if statvfs_flags & have)


def die_with_parent(expected_parent: int) -> None:
    """SIGKILL when the parent ends, also if it has ended already."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != expected_parent:
        os._exit(1)


def kill_with_parent() -> None:
    """SIGKILL when the parent ends; for a pid namespace's first process, whose parent has no number here."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl")


def enter(*, uid: int) -> None:
    """Become `uid` and enter fresh namespaces as their root; children are in the new pid namespace."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    gid = os.getegid()
    _check(
        _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl"
    )  # else /proc/self would not be ours after the uid change
    _check(_libc.unshare(ALL_NAMESPACES), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def set_hostname(name: str) -> None:
    """Of the fresh uts namespace."""
    _check(_libc.sethostname(name.encode(), len(name)), "sethostname")


def loopback_up() -> None:
    """Bring `lo` up in the (otherwise empty) network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"lo", 1))


def change_root(target: str) -> None:
    """Make `target`, a mount point, the root, and let go of the old one."""
    os.chdir(target)
    _check(_libc.syscall(_SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def give_up_privileges(seccomp_program: bytes) -> None:
    """Keep only the box's capabilities, forbid tracing, and put the seccomp filter on. In this order."""
    for capability in range(LAST_CAPABILITY + 1):
        if capability not in KEPT_CAPABILITIES:
            _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # newer numbers than the kernel's answer EINVAL
    kept = sum(1 << capability for capability in KEPT_CAPABILITIES)
    header = struct.pack("<Ii", _CAP_VERSION_3, 0)
    data = struct.pack("<6I", kept, kept, 0, 0, 0, 0)
    _check(_libc.capset(header, data), "capset")
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    _check(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl")
    buffer = ctypes.create_string_buffer(seccomp_program, len(seccomp_program))
    program = struct.pack("<HxxxxxxQ", len(seccomp_program) // 8, ctypes.addressof(buffer))
    _check(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "prctl(seccomp)")


def limit(limits: dict[str, int]) -> None:
    """Set resource limits by name (`NPROC`, `DATA`, ...), soft and hard."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))


def enter_private_mounts() -> None:
    """For the server: a mount namespace of its own (as a plain user, in a user namespace with the same
    uid)."""
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if uid else 0)), "unshare")
    if uid:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    mount("", "/", "", MS_REC | MS_PRIVATE)
