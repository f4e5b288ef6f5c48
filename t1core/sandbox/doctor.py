"""What this machine allows: which tools are there, whether namespaces work, and the command that fixes what
does not.

Nothing is inferred where it can be tried: a box's namespaces are made, once, for `true`.
"""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from t1core.sandbox import seccomp
from t1core.sandbox.room import Room, measure_room
from t1core.sandbox.state import FIRST_UID, lacks_uids

_TRY_DEADLINE_S = 20.0


@dataclass(frozen=True)
class Problem:
    """Something missing, and the command that provides it."""

    what: str
    fix: str


@dataclass(frozen=True)
class Capabilities:
    """What `probe` found. `num_boxes` is how many idle boxes `room` allows, 0 with problems."""

    bubblewrap: str
    tmux: str
    user_namespaces: bool
    seccomp: bool
    room: Room
    problems: tuple[Problem, ...]

    @property
    def num_boxes(self) -> int:
        """Idle boxes this machine holds at once."""
        return 0 if self.problems else self.room.num_boxes

    @property
    def limited_by(self) -> str:
        """What there is least of."""
        return self.room.limited_by


def probe() -> Capabilities:
    """Look at this machine. Starts three short processes, changes nothing."""
    problems = []
    versions = {}
    for tool, package, option in (("bwrap", "bubblewrap", "--version"), ("tmux", "tmux", "-V")):
        versions[tool] = _version(tool, option)
        if not versions[tool]:
            problems.append(Problem(f"{package} is not installed", f"apt-get install -y {package}"))
    if needs_setpriv := os.geteuid() == 0 and shutil.which("setpriv") is None:
        problems.append(Problem("setpriv is not installed", "apt-get install -y util-linux"))
    if lacks := lacks_uids():
        problems.append(Problem(lacks, "run as a plain user, or outside the rootless container"))
    try:
        seccomp.program()
        has_seccomp = Path("/proc/sys/kernel/seccomp").exists()
        if not has_seccomp:
            problems.append(
                Problem("the kernel has no seccomp filters", "use a kernel with CONFIG_SECCOMP_FILTER")
            )
    except ValueError as error:
        has_seccomp = False
        problems.append(Problem(str(error), f"use an x86_64 or aarch64 machine, not {platform.machine()}"))
    has_namespaces = False
    if versions["bwrap"] and not needs_setpriv and not lacks:
        said = _try_namespaces()
        has_namespaces = not said
        if said:
            problems.append(Problem(f"user namespaces are not allowed: {said}", _namespace_fix()))
    return Capabilities(
        bubblewrap=versions["bwrap"],
        tmux=versions["tmux"],
        user_namespaces=has_namespaces,
        seccomp=has_seccomp,
        room=measure_room(),
        problems=tuple(problems),
    )


def _version(tool: str, option: str) -> str:
    path = shutil.which(tool)
    if path is None:
        return ""
    done = subprocess.run(
        [path, option], capture_output=True, text=True, timeout=_TRY_DEADLINE_S, check=False
    )
    return done.stdout.strip()


def _try_namespaces() -> str:
    """Make a box's namespaces around `true`; "" when that worked, else what was said."""
    uid = f"{FIRST_UID + 65_000}"
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if os.geteuid() == 0 else []
    unshare = ["--unshare-user", "--unshare-pid", "--unshare-net", "--disable-userns", "--proc", "/proc"]
    argv = [
        *drop,
        "bwrap",
        *unshare,
        "--dev",
        "/dev",
        "--ro-bind",
        "/usr",
        "/usr",
        "--symlink",
        "usr/lib",
        "/lib",
    ]
    argv += ["--symlink", "usr/lib64", "/lib64", "/usr/bin/true"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_TRY_DEADLINE_S, cwd="/", check=False
        )
    except subprocess.TimeoutExpired:
        return f"bwrap did not answer within {_TRY_DEADLINE_S:g} s"
    return (
        "" if done.returncode == 0 else (done.stderr.strip() or f"bwrap ended with {done.returncode}")[-300:]
    )


def _namespace_fix() -> str:
    settings = (
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("user.max_user_namespaces", "0", "15000"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    )
    for name, bad, good in settings:
        path = Path("/proc/sys", name.replace(".", "/"))
        if path.exists() and path.read_text().strip() == bad:
            return f"sysctl -w {name}={good}"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return (
            "start the container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
        )
    return "allow unprivileged user namespaces on this host, or use another sandbox kind"
