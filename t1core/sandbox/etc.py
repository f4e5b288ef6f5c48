"""The /etc of a box: one root user, no network names, a quiet terminal. Shared read-only by every box of a
process."""

from pathlib import Path

_FILES = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost box\n",
    "hostname": "box\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "inputrc": "set enable-bracketed-paste off\n",
    "profile": "",
    "shells": "/bin/sh\n/bin/bash\n",
    "tmux.conf": (
        "set -g status off\nset -g history-limit 20000\n"
        "set -s escape-time 0\nset -g default-terminal screen-256color\n"
    ),
}


def write_etc(directory: Path) -> None:
    """Fill a new directory, with mount points for the few files of the host that belong there."""
    directory.mkdir()
    for name, text in _FILES.items():
        (directory / name).write_text(text)
    (directory / "alternatives").mkdir()
    for name in ("ld.so.cache", "localtime"):
        (directory / name).touch()
