"""From what a task asks of its box, and what the campaign allows, to what is opened."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from t1core.records.task import TaskEnvironment
from t1core.sandbox.dockerfile import RESERVED
from t1core.sandbox.sandbox import BoxSpec

DEFAULT_WORKDIR = "/app"


def box_spec(
    asked: TaskEnvironment,
    *,
    box_id: str,
    environment_dir: Path | None,
    memory_mb: int,
    storage_mb: int,
    max_processes: int,
    is_for_tests: bool = False,
) -> BoxSpec:
    """The box of a task, or of its separate tests: what it asks for, within the campaign's limits. Where it asks for
    more, the limit wins and a warning says so. Raises ValueError for a task that needs several containers."""
    if asked.has_compose:
        raise ValueError(
            f"{environment_dir}: docker-compose needs several containers; a box is one: use a Dockerfile"
        )
    where = environment_dir if environment_dir is not None and environment_dir.is_dir() else None
    return BoxSpec(
        box_id=box_id,
        environment_dir=where,
        workdir=asked.workdir or DEFAULT_WORKDIR,
        env=asked.env,
        memory_mb=_within("memory_mb", asked.memory_mb, memory_mb),
        storage_mb=_within("storage_mb", asked.storage_mb, storage_mb),
        max_processes=max_processes,
        docker_image=asked.docker_image,
        num_gpus=asked.num_gpus,
        cpus=asked.cpus,
        user=asked.user,
        is_for_tests=is_for_tests,
    )


def refuse_beyond_bubblewrap(spec: BoxSpec, *, has_image: bool) -> None:
    """Raise ValueError, with the way out, for what a bubblewrap box cannot honour.

    `cpus` is a claim on the machine and no quota: boxes share its cores.
    """
    reasons = []
    if spec.num_gpus:
        reasons.append(f"environment.gpus {spec.num_gpus}: boxes see no GPU; use a kind that has them")
    if spec.user not in ("", "root", "0"):
        reasons.append(f"agent.user {spec.user!r}: boxes have one user, root; leave it out")
    cores = len(os.sched_getaffinity(0))
    if spec.cpus is not None and spec.cpus > cores:
        reasons.append(
            f"environment.cpus {spec.cpus:g}: this machine has {cores}; lower it, or use a larger machine"
        )
    has_dockerfile = spec.environment_dir is not None and (spec.environment_dir / "Dockerfile").is_file()
    if spec.docker_image and not has_dockerfile and not has_image:
        reasons.append(
            f"environment.docker_image {spec.docker_image!r}: boxes over the host's /usr run no image; add a "
            "Dockerfile, or unpack the image and set sandbox.image_dir"
        )
    if reasons:
        raise ValueError(f"box {spec.box_id}: " + "; ".join(reasons))


def refuse_without_packages(spec: BoxSpec, missing: Sequence[str]) -> None:
    """Raise ValueError, with the way out, for a Dockerfile that installs what the system under a box does not have."""
    if missing:
        raise ValueError(
            f"box {spec.box_id}: its Dockerfile installs {', '.join(missing)}, nothing can be fetched, and the system "
            "that boxes run over has no such packages; install them there, or use a sandbox kind that runs images"
        )


def refuse_without_image(spec: BoxSpec) -> None:
    """Raise ValueError, with the way out, for a task that names no image to a kind that runs images."""
    has_dockerfile = spec.environment_dir is not None and (spec.environment_dir / "Dockerfile").is_file()
    if not spec.docker_image and not has_dockerfile:
        raise ValueError(
            f"box {spec.box_id}: no image: add environment/Dockerfile, or environment.docker_image to task.toml"
        )
    top = PurePosixPath(spec.workdir).parts[1:2]
    if not top or top[0] in RESERVED:
        raise ValueError(
            f"box {spec.box_id}: working directory {spec.workdir}: what lies there is not graded; use one such as /app"
        )


def _within(name: str, asked: int | None, limit: int) -> int:
    if asked is not None and asked > limit:
        warnings.warn(
            f"a task asks for {name} {asked} and gets the campaign's limit, sandbox.{name}={limit}",
            stacklevel=3,
        )
    return min(asked or limit, limit)
