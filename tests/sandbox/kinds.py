"""Each kind of sandbox, opened for a test, or the reason why it cannot run here."""

import asyncio
import contextlib
import os
import sys
import tempfile
from pathlib import Path

import pytest

from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.docker import DockerSandbox
from t1core.sandbox.harbor import HarborSandbox
from t1core.sandbox.kinds import probe_kind
from tests.sandbox.boxes import spec
from tests.sandbox.docker_server import DockerServer

IMAGE = "org/box:1"
ENVIRONMENT = "tests.sandbox.harbor_environment:BoxEnvironment"
KINDS = (
    "bubblewrap",
    "bubblewrap over an image",
    "bubblewrap over an overlay of an image",
    "docker",
    "harbor",
)


def skip_where_unable(kind):
    """Skip a test whose kind cannot run here, with what `t1 doctor` says. Docker has a server of our own."""
    if kind == "harbor" and (problems := probe_kind("harbor").problems):
        pytest.skip(f"harbor: {problems[0].what}; fix: {problems[0].fix}")
    if "overlay" in kind and os.geteuid() != 0:
        pytest.skip("an image's root can be overlaid by root only")


async def close_environments():
    """Close what Harbor's factory has imported and used."""
    if module := sys.modules.get(ENVIRONMENT.partition(":")[0]):
        await module.close()


@contextlib.asynccontextmanager
async def opened(kind, *, image, max_boxes=16):
    """A sandbox of that kind, closed afterwards with all that belongs to it; `image` is an unpacked one."""
    async with contextlib.AsyncExitStack() as stack:
        if kind == "docker":
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="t1-sock-")), "docker.sock")
            server = DockerServer(path)
            server.images[IMAGE] = None
            await server.start()
            stack.push_async_callback(server.close)
            sandbox = DockerSandbox(max_boxes=max_boxes, path=path)
            sandbox.server = server
        elif kind == "harbor":
            sandbox = HarborSandbox(environment=ENVIRONMENT, max_boxes=max_boxes)
            stack.push_async_callback(close_environments)
        else:
            given = {"image": image, "is_overlay": "overlay" in kind} if kind.endswith("an image") else {}
            sandbox = BubblewrapSandbox(max_boxes=max_boxes, **given)
        stack.push_async_callback(sandbox.close)
        yield sandbox


def in_kind(kind, test, *, image, within_s=240, **options):
    """Run `test(sandbox, spec)`, where `spec` makes what that kind can open."""

    def asking(box_id="box", **changes):
        needs_image = kind in ("docker", "harbor")
        return spec(box_id, **({"docker_image": IMAGE} if needs_image else {}) | changes)

    async def run():
        async with opened(kind, image=image, **options) as sandbox:
            await asyncio.wait_for(test(sandbox, asking), within_s)

    asyncio.run(run())
