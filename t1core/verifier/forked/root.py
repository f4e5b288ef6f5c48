"""The file system a grading child sees.

/usr (and its links), /etc, /opt/t1     read-only; the toolchain is the host's and ours, never the agent's
/app, /root, /tmp and the like          the agent's files, read-only below a discarded upper layer
/tests                                  the task's tests, read-only, above an empty read-only directory
/run/t1/bin                             for a script: the names it knows pytest by, read-only
/logs/verifier, /run, /dev, /proc       fresh and empty
"""

import os
from collections.abc import Mapping, Sequence

from t1core.verifier.forked.namespaces import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    bind_read_only,
    change_root,
    mount,
)

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = (
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
    ("pts/ptmx", "dev/ptmx"),
)
SCRATCH_BYTES = 256 << 20
COMMANDS = "/run/t1/bin"
_CLOSED = ("/tests", "/proc", "/logs/verifier")


def mount_system(at: str, *, system: str = "") -> None:
    """/usr of the host, or of the image at `system`, and the top-level directories that belong to it, read-only, below
    `at`."""
    os.makedirs(f"{at}/usr", exist_ok=True)
    bind_read_only(f"{system}/usr", f"{at}/usr")
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        source = f"{system}/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), f"{at}/{name}")
        elif os.path.isdir(source):
            os.mkdir(f"{at}/{name}")
            bind_read_only(source, f"{at}/{name}")


def build_root(
    at: str,
    *,
    etc: str,
    tests: str,
    directories: Mapping[str, str],
    workdir: str,
    programs: Mapping[str, str],
    system: str,
    below: str,
) -> None:
    """Mount all of it on the directory `at`, make it the root and enter `workdir`; `programs` are the texts of
    the commands in `COMMANDS`, `system` is the root that /usr is taken from, `below` the root over whose directories
    the agent's lie ("": over none). Needs fresh user and mount
    namespaces, and to be the pid namespace's first process. The agent's directories are only ever mounted:
    nothing below them is looked up before they are inside the new root."""
    mount("", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", at, "tmpfs", MS_NOSUID | MS_NODEV, f"size={SCRATCH_BYTES},mode=0755")
    for name in (
        "usr",
        "etc",
        "opt/t1",
        "proc",
        "dev/pts",
        "dev/shm",
        "tests",
        COMMANDS[1:],
        "var/tmp",
        "logs/verifier",
        ".upper",
    ):
        os.makedirs(f"{at}/{name}", exist_ok=True)
    mount_system(at, system=system)
    bind_read_only(etc, f"{at}/etc")
    for name in ("alternatives", "ld.so.cache"):
        if os.path.exists(f"{system}/etc/{name}"):
            bind_read_only(f"{system}/etc/{name}", f"{at}/etc/{name}")
    bind_read_only("/opt/t1", f"{at}/opt/t1")
    for top, host in directories.items():
        _layer(at, top=top, host=host, below=f"{below}{top}" if below else "")
    mount("proc", f"{at}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in _DEVICES:
        with open(f"{at}/dev/{name}", "w"):
            pass
        mount(f"/dev/{name}", f"{at}/dev/{name}", "", MS_BIND)
    mount("devpts", f"{at}/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    os.chmod(f"{at}/dev/shm", 0o1777)
    for target, name in _LINKS:
        os.symlink(target, f"{at}/{name}")
    mount("tmpfs", f"{at}/tests", "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "mode=0755")
    bind_read_only(tests, f"{at}/tests")
    commands = f"{at}/{COMMANDS[1:]}"
    for name, text in programs.items():
        with open(f"{commands}/{name}", "w") as file:
            file.write(text)
        os.chmod(f"{commands}/{name}", 0o755)
    bind_read_only(commands, commands)
    change_root(at)
    os.chdir(workdir if os.path.isdir(workdir) else "/")


def _layer(at: str, *, top: str, host: str, below: str) -> None:
    name = top[1:]
    if not os.path.isdir(f"{at}/{name}"):  # of the system, /usr/local may be the agent's
        os.mkdir(f"{at}/{name}")
    for kind in ("upper", "work"):
        os.makedirs(f"{at}/.upper/{name}/{kind}")
    os.chmod(f"{at}/.upper/{name}/upper", 0o1777 if top == "/tmp" else 0o755)
    lower, image, upper, work = (
        path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
        for path in (host, below, f"{at}/.upper/{name}/upper", f"{at}/.upper/{name}/work")
    )
    if below and os.path.isdir(below) and not _stands_alone(host, depth=top.count("/")):
        lower = f"{lower}:{image}"
    try:
        options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
        mount("overlay", f"{at}/{name}", "overlay", MS_NOSUID | MS_NODEV, options)
    except OSError:  # kernels before 5.11, and file systems that cannot lie below an overlay
        if below:
            raise
        bind_read_only(host, f"{at}/{name}")


def _stands_alone(host: str, *, depth: int) -> bool:
    """Whether a box made a directory anew where the image has one, or one of the `depth` above it: the kernel's mark
    says so within an overlay, but not at the top of one."""
    for _ in range(depth):
        try:
            if os.getxattr(host, "user.overlay.opaque", follow_symlinks=False) == b"y":
                return True
        except OSError:  # no such mark
            pass
        host = os.path.dirname(host)
    return False


def unlink_doors(links: Sequence[str]) -> None:
    """Take away those links of the agent's that lead, in this root, to the tests, to a process or to the root itself.
    The agent's own layer keeps them."""
    for link in links:
        goal = os.path.realpath(link)
        if os.path.islink(link) and (goal == "/" or goal.startswith(_CLOSED)):
            os.unlink(link)
