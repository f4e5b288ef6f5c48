"""What this machine allows: which tools are there, whether namespaces and overlay roots work, and the command that
fixes what does not.

Nothing is inferred where it can be tried: a box's namespaces are made, once, for `true`, and once over an overlay of
this machine's own root.
"""

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from t1core.sandbox import seccomp
from t1core.sandbox.furnish import make_overlay
from t1core.sandbox.room import Room, measure_room
from t1core.sandbox.runtime import ensure_runtime, install_payload, payload_argv, reachable_directory
from t1core.sandbox.sandbox import SandboxUnavailable
from t1core.sandbox.state import FIRST_UID, box_root, lacks_uids

_TRY_DEADLINE_S = 20.0
_TRY_UID = FIRST_UID + 65_000
_OVERLAY = "t1core.sandbox.inbox.overlay"


@dataclass(frozen=True)
class Problem:
    """Something missing, and the command that provides it."""

    what: str
    fix: str


@dataclass(frozen=True)
class Capabilities:
    """What `probe` found. `num_boxes` is how many idle boxes `room` allows, 0 with problems. `overlay` is what keeps
    boxes from having an image's root that they can write (`sandbox.image_root=overlay`), None when nothing does."""

    bubblewrap: str
    tmux: str
    user_namespaces: bool
    seccomp: bool
    room: Room
    problems: tuple[Problem, ...]
    overlay: Problem | None = None

    @property
    def num_boxes(self) -> int:
        """Idle boxes this machine holds at once."""
        return 0 if self.problems else self.room.num_boxes

    @property
    def limited_by(self) -> str:
        """What there is least of."""
        return self.room.limited_by


def probe() -> Capabilities:
    """Look at this machine. Starts four short processes, changes nothing."""
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
        overlay=_try_overlay()
        if has_namespaces
        else Problem("boxes do not work here", "see the problems above"),
    )


def _version(tool: str, option: str) -> str:
    path = shutil.which(tool)
    if path is None:
        return ""
    done = subprocess.run(
        [path, option], capture_output=True, text=True, timeout=_TRY_DEADLINE_S, check=False
    )
    return done.stdout.strip()


def _try_overlay() -> Problem | None:
    """Make an overlay of this machine's root as a box of an image has one, and write to it."""
    if os.geteuid() != 0:
        return Problem("an image's root can be overlaid by root only", "run as root")
    try:
        root = reachable_directory(box_root())
        with tempfile.TemporaryDirectory(prefix="try-", dir=root) as name:
            place = Path(name)
            place.chmod(0o711)
            make_overlay(place, uid=_TRY_UID)
            runtime = ensure_runtime()
            payload = install_payload(runtime, (_OVERLAY,))
            overlay = [*payload_argv(str(runtime), payload, _OVERLAY), str(_TRY_UID), "/", name]
            inside = ["--bind", f"{name}/root", "/", "--proc", "/proc", "--dev", "/dev"]
            said = _run(overlay, inside, "touch /usr/.t1-try && rm /usr/.t1-try /bin/true")
    except (OSError, SandboxUnavailable) as error:
        said = str(error)
    if not said:
        return None
    return Problem(
        f"an overlay root does not work: {said}",
        "use kernel 5.19 or newer, with T1CORE_BOX_DIR on a file system that can lie below an overlay (ext4, xfs, "
        "btrfs), or set sandbox.image_root=read_only",
    )


def _try_namespaces() -> str:
    """Make a box's namespaces around `true`; "" when that worked, else what was said."""
    usr = ["--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]
    usr += ["--symlink", "usr/bin", "/bin"]
    return _run([], ["--proc", "/proc", "--dev", "/dev", *usr], "true")


def _run(before: Sequence[str], places: Sequence[str], command: str) -> str:
    """Run a shell command in a box's namespaces over `places`; "" when that worked, else what was said."""
    uid = f"{_TRY_UID}"
    setpriv = shutil.which("setpriv") or "setpriv"
    drop = [setpriv, f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if os.geteuid() == 0 else []
    unshare = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--disable-userns",
        "--uid",
        "0",
        "--gid",
        "0",
    ]
    bwrap = shutil.which("bwrap") or "bwrap"
    argv = [*before, *drop, bwrap, *unshare, *places, "/bin/sh", "-c", command]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_TRY_DEADLINE_S, cwd="/", env={}, check=False
        )
    except subprocess.TimeoutExpired:
        return f"bwrap did not answer within {_TRY_DEADLINE_S:g} s"
    said = done.stderr.strip() or f"bwrap ended with {done.returncode}"
    return "" if done.returncode == 0 else said[-300:]


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
