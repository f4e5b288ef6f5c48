"""The kinds of sandbox: which there are, what each needs here, and how one is opened."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.docker import FIX, DockerSandbox
from t1core.sandbox.docker_api import DockerApi, DockerError, DockerSilent, socket_path
from t1core.sandbox.doctor import Problem, probe
from t1core.sandbox.harbor import HarborSandbox, harbor_version
from t1core.sandbox.room import BOX_BYTES, MEMORY_FRAC
from t1core.sandbox.sandbox import SandboxUnavailable
from t1core.sandbox.state import BLOCK_SIZE

Kind = Literal["bubblewrap", "docker", "harbor"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LIMITS: Mapping[Kind, str] = {
    "bubblewrap": "processes, memory, disk, file size, open files; no network, no other user, no GPU",
    "docker": "processes, memory, CPU, file size; disk now and then; no network; users and GPUs as the daemon has them",
    "harbor": "what the environment holds; disk now and then; no network; users and GPUs as the environment has them",
}


@dataclass(frozen=True)
class KindFound:
    """What a kind needs here: `version` of what it stands on ("" when it is missing), and how many boxes there can be
    at once, as far as can be told from here (None: only the provider knows)."""

    kind: Kind
    version: str
    num_boxes: int | None
    limited_by: str
    problems: tuple[Problem, ...]


def probe_kind(kind: Kind) -> KindFound:
    """Look whether boxes of that kind can be opened from here. Every kind is graded in bubblewrap's namespaces."""
    local = probe()
    if kind == "bubblewrap":
        return KindFound(kind, local.bubblewrap, local.num_boxes, local.limited_by, local.problems)
    version, num_boxes, limited_by, problems = "", None, "the provider", list(local.problems)
    try:
        if kind == "docker":
            version, memory_bytes = asyncio.run(_ask_daemon())
            boxes = {"uids": BLOCK_SIZE, "the daemon's memory": int(memory_bytes * MEMORY_FRAC) // BOX_BYTES}
            limited_by = min(boxes, key=lambda name: boxes[name])
            num_boxes = boxes[limited_by]
        else:
            version = harbor_version()
    except SandboxUnavailable as error:
        problems.append(Problem(error.missing, error.fix))
    except (DockerSilent, DockerError, ValueError) as error:
        problems.append(Problem(str(error), FIX))
    return KindFound(kind, version, num_boxes, limited_by, tuple(problems))


async def _ask_daemon() -> tuple[str, int]:
    api = DockerApi(socket_path())
    await api.connect()
    found = await api.call("GET", "/info")
    return f"Docker {found['ServerVersion']}", int(found["MemTotal"])


def open_kind(
    kind: Kind,
    *,
    image: Path | None = None,
    is_overlay: bool = False,
    environment: str = "",
    options: Mapping[str, Any] | None = None,
) -> BubblewrapSandbox | DockerSandbox | HarborSandbox:
    """A sandbox of that kind. `image` and `is_overlay` are bubblewrap's; `environment` and `options`, keyword
    arguments, are Harbor's. Raises what the kind's constructor raises."""
    if kind == "docker":
        return DockerSandbox(max_boxes=BLOCK_SIZE)
    if kind == "harbor":
        return HarborSandbox(environment=environment, max_boxes=BLOCK_SIZE, options=options)
    return BubblewrapSandbox(image=image, is_overlay=is_overlay)
