"""Putting an environment's files into a box's directories, on the host, before any process of the box
exists."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from t1core.sandbox.dockerfile import RESERVED, Copy

# Where a box over an overlay sees what it has written, to count it. In a read-only directory that is a mount itself, so
# that no renaming takes it out of sight.
SEEN_UPPER = "/dev/written"


def copy_in(step: Copy, *, environment_dir: Path, directories: Mapping[str, Path]) -> None:
    """Carry out a COPY: files and trees to their place under `directories`, as Docker would place them.

    Raises ValueError for a source that is missing or outside the environment directory.
    """
    for inside in sources_of(step, environment_dir=environment_dir):
        target = host_path(step.target, directories)
        if inside.is_dir():
            shutil.copytree(inside, target, symlinks=True, dirs_exist_ok=True)
        else:
            if step.into_directory or target.is_dir():
                target = target / inside.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(inside, target)
        if step.mode is not None:
            for path in [target, *target.rglob("*")] if target.is_dir() else [target]:
                if path.is_file() and not path.is_symlink():
                    path.chmod(step.mode)


def sources_of(step: Copy, *, environment_dir: Path) -> list[Path]:
    """The files and trees that a COPY names, patterns among them. Raises ValueError for one that is missing, or
    outside the environment directory."""
    root = environment_dir.resolve()
    out: list[Path] = []
    for name in step.sources:
        is_pattern = any(mark in name for mark in "*?[")
        found = sorted(root.glob(name.lstrip("/"))) if is_pattern else [root / name.lstrip("/")]
        inside = [path.resolve() for path in found]
        if not inside or not all(path.is_relative_to(root) and path.exists() for path in inside):
            raise ValueError(
                f"{environment_dir}/Dockerfile: COPY {name}: no such file in the environment directory"
            )
        out += inside
    return out


def copy_from_image(image: Path, top: str, target: Path) -> None:
    """What an image holds in one of the directories that a box keeps; links stay links, set-uid bits go."""
    source = image / top[1:]
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        for directory, _, names in os.walk(target):
            for path in (os.path.join(directory, name) for name in names):
                if not os.path.islink(path):
                    os.chmod(path, os.stat(path).st_mode & 0o777)


def make_overlay(place: Path, *, uid: int) -> Path:
    """The directories of a box's overlay root; returns the one that holds what the box writes."""
    for name in ("lower", "upper", "work", "root"):
        (place / name).mkdir()
        (place / name).chmod(0o755)
    os.chown(place / "upper", uid, uid)
    return place / "upper"


def top_directories(root: Path) -> list[str]:
    """Top-level directories below a root that are no part of a system, links left out."""
    return [
        f"/{name}"
        for name in sorted(os.listdir(root))
        if name not in RESERVED and (root / name).is_dir() and not (root / name).is_symlink()
    ]


def written(upper: Path) -> dict[str, Path]:
    """What a dead box over an overlay leaves to be graded, by its path in the box: real directories only, since a box
    may have put a link in the place of one. Of the system, /usr/local."""
    found = {top: upper / top[1:] for top in top_directories(upper)}
    local = upper / "usr" / "local"
    if local.is_dir() and not local.is_symlink() and not local.parent.is_symlink():
        found["/usr/local"] = local
    return found


def host_path(path: str, directories: Mapping[str, Path]) -> Path:
    """Where a path of the box lives on the host. Only for trees no process of a box has touched yet."""
    parts = PurePosixPath(path).parts
    return directories["/" + parts[1]].joinpath(*parts[2:])


def hand_over(directories: Mapping[str, Path], *, uid: int) -> None:
    """Make the box's uid the owner of everything furnished so far."""
    if os.geteuid() != 0:
        return
    for top in directories.values():
        for directory, _, names in os.walk(top):
            os.chown(directory, uid, uid)
            for name in names:
                os.chown(os.path.join(directory, name), uid, uid, follow_symlinks=False)
