"""Before a box over an image's root is started: its root is mounted, an overlay of the image and the box's own files.

Runs on the host, as its root, in a mount namespace of its own that ends with the box; then becomes the program that
starts the box. The image's files belong to the host's root, whom the box's user namespace does not know; so they are
seen through a mount that shows root's files as the box's uid (kernel 5.19 for such a layer of an overlay).
"""

import ctypes
import os
import struct
import sys

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 1, 2, 4, 16384, 1 << 18
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC, AT_FDCWD = 1, 0o2000000, -100
AT_EMPTY_PATH, AT_RECURSIVE, MOVE_MOUNT_F_EMPTY_PATH = 0x1000, 0x8000, 4
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_IDMAP = 1, 2, 4, 0x100000
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442  # the same on every architecture
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mapping(uid: int) -> int:
    """Descriptor of a user namespace that maps root to `uid`, and nobody else."""
    (ready_read, ready_write), (done_read, done_write) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _check(_libc.unshare(CLONE_NEWUSER), "unshare")
            os.write(ready_write, b"1")
            os.close(done_write)
            os.read(done_read, 1)
        finally:
            os._exit(0)
    os.close(ready_write)
    try:
        if not os.read(ready_read, 1):
            raise OSError("no user namespace can be made")
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{name}", "w") as file:
                file.write(f"0 {uid} 1")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for fd in (ready_read, done_read, done_write):
            os.close(fd)
        os.waitpid(pid, 0)


def show_as(image: str, target: str, *, uid: int) -> None:
    """Mount `image` read-only on `target`, root's files shown as `uid`'s."""
    tree = _check(
        _libc.syscall(SYS_OPEN_TREE, AT_FDCWD, image.encode(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC),
        f"open_tree {image}",
    )
    namespace = mapping(uid)
    flags = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_IDMAP
    attributes = struct.pack("=QQQQ", flags, 0, 0, namespace)
    _check(
        _libc.syscall(
            SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, ctypes.c_size_t(len(attributes))
        ),
        f"mount_setattr {image}: the kernel or the file system knows no mapped mounts",
    )
    _check(
        _libc.syscall(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH),
        f"move_mount {target}",
    )
    os.close(tree)
    os.close(namespace)


def main() -> None:
    """argv: the box's uid, the image, the box's directory on the host, then the command line to become."""
    uid, image, place, *argv = sys.argv[1:]
    try:
        _check(_libc.unshare(CLONE_NEWNS), "unshare")
        _check(_libc.mount(b"", b"/", b"", ctypes.c_ulong(MS_REC | MS_PRIVATE), b""), "mount /")
        show_as(image, f"{place}/lower", uid=int(uid))
        options = f"lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work,userxattr"
        flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
        _check(
            _libc.mount(b"overlay", f"{place}/root".encode(), b"overlay", flags, options.encode()),
            f"mount overlay on {image}",
        )
    except OSError as error:
        sys.stderr.write(f"overlay: {error}\n")
        os._exit(1)
    os.execv(argv[0], argv)
