"""First stage of the fork server: a root in which every path has the name it has in a grading child.

/opt/t1, /usr and its links, /proc, /dev    as everywhere
/tests, /app                                empty: pytest is configured with them before any task is known
/host                                       the host's root, for the children's mounts; children never see it
"""

import os
import sys

from t1core.verifier.forked import namespaces, root

HOST = "/host"


def main() -> None:
    """argv: socket descriptor, runtime on the host, payload relative to it, an empty directory."""
    descriptor, runtime, payload, at = sys.argv[1:5]
    namespaces.die_with_parent(os.getppid())
    namespaces.enter_private_mounts()
    namespaces.mount("tmpfs", at, "tmpfs", namespaces.MS_NOSUID | namespaces.MS_NODEV, "mode=0755")
    for name in ("opt/t1", "tests", "app", "tmp", "proc", "dev", HOST[1:]):
        os.makedirs(f"{at}/{name}")
    root.mount_system(at)
    namespaces.bind_read_only(runtime, f"{at}/opt/t1")
    for name in ("proc", "dev", ""):
        target = name or HOST[1:]
        namespaces.mount(f"/{name}", f"{at}/{target}", "", namespaces.MS_BIND | namespaces.MS_REC)
    namespaces.change_root(at)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    paths = [f"/opt/t1/{payload}", f"/opt/t1/lib/{version}/site-packages"]
    code = f"import sys; sys.path[:0] = {paths!r}; from t1core.verifier.forked.server import main; main()"
    python = "/opt/t1/bin/python3"
    os.execve(
        python,
        [python, "-I", "-S", "-B", "-c", code, descriptor, paths[0]],
        {"PATH": os.defpath, "LANG": "C.UTF-8"},
    )
