"""Boxes in containers of a Docker daemon: the task's own image, its own user, GPUs where the daemon has them.

A container has no network, the capabilities of a bubblewrap box, no new privileges, Docker's seccomp profile, and the
limits of memory, processes, CPU and file size. What it leaves is graded on this host, over the host's /usr (or the
image in `sandbox.image_dir`), by the same grader as every box's. It has been run against a server of our own that
speaks the Engine API, not against a real daemon.
"""

import asyncio
import hashlib
import io
import json
import os
import shutil
import socket
import tarfile
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.docker_api import DockerApi, DockerError, DockerSilent, socket_path
from t1core.sandbox.machine import Finished
from t1core.sandbox.machine_box import ARCHIVE_BYTES, MachineBox, refuse_without_room
from t1core.sandbox.request import refuse_without_image
from t1core.sandbox.sandbox import BoxBroken, BoxDied, BoxSpec, BoxTimeout, SandboxUnavailable

OWNER = "t1core.owner"
FIX = "start a Docker daemon, and let DOCKER_HOST name its UNIX socket if that is not /var/run/docker.sock"
# The container's first process: it reaps, and no signal from inside can end it.
_FIRST = "while :; do sleep 3600 & wait $!; done"
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETUID", "SETGID")


class DockerSandbox:
    """Opens boxes in containers; see `Sandbox`."""

    def __init__(self, *, max_boxes: int, path: Path | None = None) -> None:
        """`max_boxes` counts layers that are not closed yet. `path` is the daemon's socket; left out, DOCKER_HOST says
        it. Raises what `BubblewrapSandbox` raises: layers are unpacked in its boxes."""
        self._api = DockerApi(path or socket_path())
        self._unpacker = BubblewrapSandbox(max_boxes=max_boxes)
        self.state_path = self._unpacker.state_path
        self._boxes: set[MachineBox] = set()
        self._first, self._is_ready = asyncio.Lock(), False
        self._images: dict[str, asyncio.Lock] = {}

    async def open(self, spec: BoxSpec) -> MachineBox:
        """Find or build the image and start a container; see `Sandbox.open`."""
        refuse_without_image(spec)
        refuse_without_room(len(self._boxes), self._unpacker)
        try:
            await self._connect()
            image = await self._image(spec)
            # Named by us, so that one whose making was cut short can be removed, too.
            name = f"t1core-{os.getpid()}-{uuid.uuid4().hex}"
            machine = Container(self._api, name, user=spec.user, box_id=spec.box_id)
            try:
                await self._create(spec, image, name=name)
                return await self._opened(spec, machine, entrypoint=await self._entrypoint(image))
            except BaseException:
                await asyncio.shield(machine.remove())
                raise
        except DockerSilent as error:
            raise SandboxUnavailable(str(error), fix=FIX) from None
        except DockerError as error:
            if 400 <= error.status < 500:
                raise ValueError(f"box {spec.box_id}: {error}") from None
            raise SandboxUnavailable(str(error), fix="see the daemon's log") from None

    async def _entrypoint(self, image: str) -> tuple[str, ...]:
        found = await self._api.call("GET", f"/images/{image}/json")
        return tuple((found.get("Config") or {}).get("Entrypoint") or ())

    async def _opened(self, spec: BoxSpec, machine: "Container", *, entrypoint: Sequence[str]) -> MachineBox:
        await self._api.call("POST", f"/containers/{machine.ident}/start")
        found = await self._api.call("GET", f"/containers/{machine.ident}/json")
        if found["State"].get("Status") == "created":
            raise SandboxUnavailable(
                f"the Docker daemon said that it started container {machine.ident}, and it did not",
                fix="see the daemon's log",
            )
        workdir = found["Config"].get("WorkingDir") or ""
        box = MachineBox(
            spec,
            machine,
            workdir=spec.workdir if workdir in ("", "/") else workdir,
            entrypoint=entrypoint,
            env=dict(pair.split("=", 1) for pair in found["Config"].get("Env") or ()),
            unpacker=self._unpacker,
            on_closed=self._boxes.discard,
        )
        self._boxes.add(box)
        try:
            await box.prepare()
        except BaseException:
            await box.close()
            raise
        return box

    async def _connect(self) -> None:
        async with self._first:
            if not self._is_ready:
                await self._api.connect()
                await self._clear_abandoned()
                self._is_ready = True

    async def _clear_abandoned(self) -> None:
        """Remove containers whose host process, on this machine, is gone: a daemon does not end them with it."""
        filters = json.dumps({"label": [OWNER]})
        for found in await self._api.call("GET", "/containers/json", all="1", filters=filters):
            host, _, pid = found["Labels"].get(OWNER, "").rpartition(":")
            if host == socket.gethostname() and not Path("/proc", pid).exists():
                await self._api.call("DELETE", f"/containers/{found['Id']}", force="1", v="1")

    async def _image(self, spec: BoxSpec) -> str:
        if spec.docker_image:
            async with self._images.setdefault(spec.docker_image, asyncio.Lock()):
                if not await self._has(spec.docker_image):
                    is_exact = "@" in spec.docker_image or ":" in spec.docker_image.rpartition("/")[2]
                    tag = {} if is_exact else {"tag": "latest"}  # without one, all of them would be fetched
                    await self._progress("POST", "/images/create", fromImage=spec.docker_image, **tag)
            return spec.docker_image
        assert spec.environment_dir is not None
        context = _archive(spec.environment_dir)
        tag = f"t1core/{hashlib.sha256(context).hexdigest()[:32]}:latest"
        async with self._images.setdefault(tag, asyncio.Lock()):
            if not await self._has(tag):
                said = await self._api.send_archive("POST", "/build", context, t=tag, rm="1", forcerm="1")
                _refuse_errors(said)
        return tag

    async def _has(self, image: str) -> bool:
        try:
            await self._api.call("GET", f"/images/{image}/json")
        except DockerError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def _progress(self, method: str, path: str, **query: str) -> None:
        _refuse_errors(b"".join([piece async for piece in self._api.stream(method, path, **query)]))

    async def _create(self, spec: BoxSpec, image: str, *, name: str) -> None:
        memory = spec.memory_mb << 20
        limits: dict[str, Any] = {
            "NetworkMode": "none",
            "Memory": memory,
            "MemorySwap": memory,
            "PidsLimit": spec.max_processes,
            "Ulimits": [
                {"Name": "fsize", "Soft": spec.max_file_mb << 20, "Hard": spec.max_file_mb << 20},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            "CapDrop": ["ALL"],
            "CapAdd": list(_CAPABILITIES),
            "SecurityOpt": ["no-new-privileges"],
        }
        if spec.cpus is not None:
            limits["NanoCpus"] = int(spec.cpus * 1e9)
        if spec.num_gpus:
            limits["DeviceRequests"] = [{"Driver": "", "Count": spec.num_gpus, "Capabilities": [["gpu"]]}]
        await self._api.call(
            "POST",
            "/containers/create",
            name=name,
            body={
                "Image": image,
                "Entrypoint": ["bash", "-c", _FIRST],
                "Cmd": [],
                "Env": [f"{name}={value}" for name, value in spec.env.items()],
                "Hostname": "box",
                "Labels": {OWNER: f"{socket.gethostname()}:{os.getpid()}"},
                "HostConfig": limits,
            },
        )

    async def close(self) -> None:
        """Close every box still open. Layers of this sandbox end too."""
        while self._boxes:
            await asyncio.gather(*(box.close() for box in list(self._boxes)))
        await self._unpacker.close()


class Container:
    """One container; see `Machine`."""

    def __init__(self, api: DockerApi, ident: str, *, user: str, box_id: str) -> None:
        self._api, self.ident, self._user, self._box_id = api, ident, user, box_id
        self._is_removed = False

    async def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, within_s: float
    ) -> Finished:
        """See `Machine.run`."""
        body = {
            "AttachStdout": True,
            "AttachStderr": True,
            "Cmd": list(argv),
            "Env": [f"{name}={value}" for name, value in env.items()],
            "WorkingDir": cwd,
            "User": self._user,
        }
        try:
            async with asyncio.timeout(within_s):
                made = await self._api.call("POST", f"/containers/{self.ident}/exec", body=body)
                output = await self._api.output(made["Id"])
                found = await self._api.call("GET", f"/exec/{made['Id']}/json")
        except TimeoutError:
            raise BoxTimeout(f"box {self._box_id}: no answer within {within_s:g} s") from None
        except DockerSilent as error:
            raise BoxDied(f"box {self._box_id}: {error}") from None
        except DockerError as error:
            raise await self._end(error) from None
        return Finished(found["ExitCode"] or 0, output.decode("ascii", errors="replace"))

    async def _end(self, error: DockerError) -> Exception:
        """What became of a container that takes no command. While the daemon answers and knows it, that is the doing of
        what runs in it: killed for its memory, or without the shell that is asked for."""
        try:
            state = await self._state()
        except (DockerError, DockerSilent):
            return BoxDied(f"box {self._box_id}: {error}")
        if error.status >= 500 and state.get("Running"):
            return BoxDied(f"box {self._box_id}: {error}")
        why = "it used more memory than it may" if state.get("OOMKilled") else str(error)
        return BoxBroken(f"box {self._box_id} is gone: {why}")

    async def upload(self, source: Path, target: str) -> None:
        """See `Machine.upload`."""
        place = PurePosixPath(target)
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            entry = archive.gettarinfo(source, arcname=place.name)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            with open(source, "rb") as file:
                archive.addfile(entry, file)
        try:
            await self._api.send_archive(
                "PUT", f"/containers/{self.ident}/archive", data.getvalue(), path=str(place.parent)
            )
        except DockerSilent as error:
            raise BoxDied(f"box {self._box_id}: {error}") from None
        except DockerError as error:
            raise ValueError(f"box {self._box_id}: cannot write {target}: {error}") from None

    async def download(self, source: str, target: Path, *, limit_bytes: int) -> bool:
        """See `Machine.download`."""
        try:
            with tempfile.TemporaryFile() as file:
                left = await self._read(source, file, limit_bytes=limit_bytes + ARCHIVE_BYTES)
                file.seek(0)
                if left <= 0:
                    return False
                with tarfile.open(fileobj=file) as archive:
                    entry = archive.next()
                    content = archive.extractfile(entry) if entry is not None else None
                    if content is None or entry is None:
                        raise ValueError(f"box {self._box_id}: cannot read {source}: it is no file")
                    with open(target, "wb") as out:
                        shutil.copyfileobj(content, out)
                    return entry.size <= limit_bytes
        except DockerError as error:
            if error.status == 404:
                raise ValueError(f"box {self._box_id}: cannot read {source}: {error}") from None
            raise BoxDied(f"box {self._box_id}: {error}") from None
        except (DockerSilent, tarfile.TarError) as error:
            raise BoxDied(f"box {self._box_id}: {error}") from None

    async def archive(
        self, directories: Sequence[str], *, into: Path, limit_bytes: int, is_end: bool
    ) -> bool:
        """See `Machine.archive`. The daemon itself reads the files of a container that is dead, or stands still."""
        try:
            await self._order("kill" if is_end else "pause")
            try:
                left = limit_bytes
                for number, top in enumerate(directories):
                    with open(into / f"{number:03}.tar", "wb") as file:
                        try:
                            left = await self._read(top, file, limit_bytes=left)
                        except DockerError as error:
                            if error.status != 404:  # a directory that is no more
                                raise
                        if left <= 0:
                            return False
            finally:
                if not is_end:
                    await asyncio.shield(self._order("unpause"))
        except (DockerError, DockerSilent) as error:
            raise BoxDied(f"box {self._box_id}: {error}") from None
        return True

    async def _read(self, path: str, file: IO[bytes], *, limit_bytes: int) -> int:
        """Write the daemon's archive of a path to `file`, no more than the limit; what is left of that."""
        left = limit_bytes
        async for piece in self._api.stream("GET", f"/containers/{self.ident}/archive", path=path):
            file.write(piece[: max(0, left)])
            left -= len(piece)
            if left <= 0:
                break
        return left

    async def _order(self, what: str) -> None:
        try:
            await self._api.call("POST", f"/containers/{self.ident}/{what}")
        except DockerError as error:
            if error.status != 409:  # it runs no more, or stands still already
                raise
        if what == "kill" and (await self._state())["Running"]:
            raise BoxDied(
                f"box {self._box_id}: the Docker daemon said that it killed container {self.ident}, which still runs"
            )

    async def _state(self) -> dict[str, Any]:
        return (await self._api.call("GET", f"/containers/{self.ident}/json"))["State"]

    async def remove(self) -> None:
        """See `Machine.remove`. Raises BoxDied when the daemon says that it is gone and it is not."""
        if self._is_removed:
            return
        try:
            await self._api.call("DELETE", f"/containers/{self.ident}", force="1", v="1")
            state = await self._state()
        except DockerError as error:
            if error.status not in (404, 409):  # gone, or going
                raise
            state = {}
        if state.get("Status") not in (None, "removing", "dead"):
            raise BoxDied(
                f"box {self._box_id}: the Docker daemon said that it removed container {self.ident}, which is still "
                "there; remove it by hand"
            )
        self._is_removed = True


def _archive(directory: Path) -> bytes:
    """A directory as a tar archive that depends on nothing but names, contents and whether they can be executed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(directory.rglob("*")):
            entry = archive.gettarinfo(path, arcname=str(path.relative_to(directory)))
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            if entry.isreg():
                with open(path, "rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return out.getvalue()


def _refuse_errors(progress: bytes) -> None:
    """Raise ValueError for an error in a stream of progress lines, whose status is 200 whatever happens."""
    for line in progress.splitlines():
        if line.strip() and "error" in (said := json.loads(line)):
            raise ValueError(f"Docker: {str(said['error'])[:500]}")
