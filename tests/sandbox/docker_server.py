"""A server that speaks the part of Docker's Engine API that boxes use, and really runs commands: each container is a
bubblewrap box. It stands in for a daemon in tests; Docker's own command line is held against it where it is installed.

A container runs its entrypoint with its command, and has ended when that has. Who a command runs as is looked up as a
daemon does, refused where nobody is called so, and decides its HOME; but all run as the box's one uid, so that neither
a file's owner nor a permission can be tested here. While a container is paused it takes no command; its processes run.
"""

import asyncio
import base64
import io
import itertools
import json
import shlex
import tarfile
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.dockerfile import read_recipe
from t1core.sandbox.sandbox import BoxSpec

API = "1.47"


class Refused(Exception):
    def __init__(self, status, message):
        self.status, self.message = status, message


class Container:
    def __init__(self, ident, asked):
        self.id, self.asked, self.box, self.layer, self.oom_killed = ident, asked, None, None, False
        self.main, self.is_paused = None, False

    @property
    def is_up(self):
        return self.box is not None and self.layer is None and not self.main.done()


class DockerServer:
    """`images` maps a name to the directory of its Dockerfile, or None for an empty one; `users` are what an image's
    /etc/passwd says: name, uid and home; `image_users` what its USER says."""

    def __init__(self, path):
        self.path, self.images, self.containers, self.execs = path, {}, {}, {}
        self.users, self.image_users, self.ran_as = {"root": (0, "/root")}, {}, []
        self.requests, self.queries, self._ids = [], [], itertools.count()
        self._boxes = BubblewrapSandbox()
        self._place = tempfile.TemporaryDirectory(prefix="t1-docker-")
        self._server = None

    async def start(self):
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=1 << 20)

    async def close(self):
        self._server.close()
        for container in self.containers.values():
            if container.main is not None:
                container.main.cancel()
        await self._boxes.close()
        self._place.cleanup()

    async def _serve(self, reader, writer):
        try:
            while line := await reader.readline():
                method, target, _ = line.decode().split()
                headers = {}
                while text := (await reader.readline()).decode().strip():
                    name, _, value = text.partition(":")
                    headers[name.lower()] = value.strip()
                body = await self._body(reader, headers)
                url = urlsplit(target)
                path = unquote(url.path)
                if path.startswith("/v1."):
                    path = path[path.index("/", 1) :]
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                self.requests.append((method, path))
                self.queries.append((path, query))
                if path.endswith("/start") and path.startswith("/exec/"):
                    await self._start_exec(path.split("/")[2], headers, writer)
                    break
                try:
                    status, kind, answer = await self._answer(method, path, query, body)
                except Refused as refused:
                    status, kind = refused.status, "application/json"
                    answer = json.dumps({"message": refused.message}).encode()
                extra = ""
                if isinstance(answer, tuple):
                    extra, answer = answer
                head = f"HTTP/1.1 {status} X\r\nApi-Version: {API}\r\nOstype: linux\r\nContent-Type: {kind}\r\n{extra}"
                if method == "HEAD":
                    writer.write(f"{head}\r\n".encode())
                elif len(answer) > 1000:  # as Docker does
                    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
                    for at in range(0, len(answer), 30_000):
                        piece = answer[at : at + 30_000]
                        writer.write(b"%x\r\n" % len(piece) + piece + b"\r\n")
                    writer.write(b"0\r\n\r\n")
                else:
                    writer.write(f"{head}Content-Length: {len(answer)}\r\n\r\n".encode() + answer)
                await writer.drain()
                if headers.get("connection", "").lower() == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _body(self, reader, headers):
        if headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int((await reader.readline()).strip(), 16):
                parts.append(await reader.readexactly(size))
                await reader.readline()
            await reader.readline()
            return b"".join(parts)
        return await reader.readexactly(int(headers.get("content-length", 0)))

    async def _start_exec(self, ident, headers, writer):
        run = self.execs[ident]
        kind = "application/vnd.docker.raw-stream"
        if "upgrade" in headers:
            writer.write(
                f"HTTP/1.1 101 UPGRADED\r\nContent-Type: {kind}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode()
            )
        else:
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode())
        asked = run["asked"]
        container = run["container"]
        env = self._home(asked.get("User") or container.asked.get("User") or self._user_of(container))
        env |= dict(pair.split("=", 1) for pair in asked.get("Env") or ())
        done = await container.box.exec(
            shlex.join(asked["Cmd"]), timeout_s=600, env=env, cwd=asked.get("WorkingDir") or None
        )
        run["code"] = done.rc if done.rc >= 0 else 128 - done.rc
        for which, data in ((1, done.stdout), (2, done.stderr)):
            for at in range(0, len(data), 20_000):
                piece = data[at : at + 20_000]
                writer.write(bytes([which, 0, 0, 0]) + len(piece).to_bytes(4, "big") + piece)
        await writer.drain()

    def _user_of(self, container):
        return self.image_users.get(container.asked["Image"], "root")

    def _home(self, user):
        """HOME of a user by name or uid, as a daemon finds it in the container."""
        name = user.partition(":")[0]
        for known, (uid, home) in self.users.items():
            if name in (known, str(uid)):
                self.ran_as.append(known)
                return {"HOME": home}
        if name.isdigit():
            self.ran_as.append(name)
            return {"HOME": "/"}
        raise Refused(400, f"unable to find user {name}: no matching entries in passwd file")

    async def _answer(self, method, path, query, body):
        words = path.strip("/").split("/")
        match method, *words:
            case ("GET" | "HEAD", "_ping"):
                return 200, "text/plain", b"OK"
            case "GET", "version":
                return self._json(
                    {"Version": "27.0", "ApiVersion": API, "MinAPIVersion": "1.24", "Os": "linux"}
                )
            case "GET", "info":
                return self._json({"MemTotal": 8 << 30, "NCPU": 2, "ServerVersion": "27.0"})
            case "POST", "build":
                return await self._build(query["t"], body)
            case "POST", "images", "create":
                if query["fromImage"] == "none:1":
                    return self._json({"error": "pull access denied for none"})
                self.images[query["fromImage"]] = None
                return self._json({"status": "Pulled"})
            case "GET", "images", *name, "json":
                if "/".join(name) not in self.images:
                    raise Refused(404, "No such image")
                directory = self.images["/".join(name)]
                given = self._recipe(directory)
                config = {"Entrypoint": list(given.entrypoint) if given and given.entrypoint else None}
                return self._json({"Id": "sha256:0", "Config": config})
            case "POST", "containers", "create":
                return self._create(json.loads(body), ident=query.get("name"))
            case "GET", "containers", "json":
                return self._json(
                    [{"Id": c.id, "Labels": c.asked.get("Labels", {})} for c in self.containers.values()]
                )
            case _, "containers", ident, *rest:
                if ident not in self.containers:
                    raise Refused(404, f"No such container: {ident}")
                return await self._on_container(self.containers[ident], method, rest, query, body)
            case "GET", "exec", ident, "json":
                run = self.execs[ident]
                return self._json({"ID": ident, "ExitCode": run["code"], "Running": run["code"] is None})
        raise Refused(404, f"page not found: {method} {path}")

    async def _build(self, tag, body):
        directory = Path(self._place.name, str(len(self.images)))
        with tarfile.open(fileobj=io.BytesIO(body)) as context:
            context.extractall(directory, filter="data")
        try:
            read_recipe((directory / "Dockerfile").read_text(), workdir="/app")
        except ValueError as error:
            return self._json({"error": str(error)})
        self.images[tag] = directory
        return self._json({"stream": "Successfully built"})

    @staticmethod
    def _recipe(directory):
        return read_recipe((directory / "Dockerfile").read_text(), workdir="/app") if directory else None

    def _create(self, asked, *, ident=None):
        if asked["Image"] not in self.images:
            raise Refused(404, f"No such image: {asked['Image']}")
        ident = ident or f"{next(self._ids):064x}"
        self.containers[ident] = Container(ident, asked)
        return self._json({"Id": ident, "Warnings": []}, status=201)

    async def _on_container(self, container, method, rest, query, body):
        directory = self.images[container.asked["Image"]]
        match method, *rest:
            case "POST", "start":
                asked = container.asked
                env = dict(pair.split("=", 1) for pair in asked["Env"])
                limits = asked["HostConfig"]
                spec = BoxSpec(
                    box_id=container.id[-4:], environment_dir=directory, env=env, storage_mb=2048,
                    memory_mb=limits["Memory"] >> 20, max_processes=limits["PidsLimit"],
                )  # fmt: skip
                container.box = await self._boxes.open(spec)
                self._home(asked.get("User") or self._user_of(container))
                main = [*(asked.get("Entrypoint") or ()), *(asked.get("Cmd") or ())]
                container.main = asyncio.ensure_future(
                    container.box.exec(shlex.join(main), timeout_s=100_000)
                )
                container.main.add_done_callback(lambda done: done.cancelled() or done.exception())
                return 204, "text/plain", b""
            case "GET", "json":
                recipe = self._recipe(directory)
                env = [f"{k}={v}" for k, v in (recipe.env if recipe else {}).items()] + container.asked["Env"]
                config = {"WorkingDir": recipe.workdir if recipe else "", "Env": env, "Tty": False}
                status = "created" if container.box is None else "running" if container.is_up else "exited"
                state = {
                    "OOMKilled": container.oom_killed,
                    "Running": container.is_up,
                    "Paused": container.is_paused,
                    "Status": status,
                }
                return self._json({"Id": container.id, "Name": "/c", "Config": config, "State": state})
            case "POST", "exec":
                if not container.is_up:
                    raise Refused(409, f"container {container.id} is not running")
                if container.is_paused:
                    raise Refused(
                        409, f"container {container.id} is paused, unpause the container before exec"
                    )
                asked = json.loads(body)
                self._home(asked.get("User") or container.asked.get("User") or self._user_of(container))
                ident = f"e{len(self.execs)}"
                self.execs[ident] = {"container": container, "asked": asked, "code": None}
                return self._json({"Id": ident}, status=201)
            case "POST", ("pause" | "unpause") as what:
                if not container.is_up or container.is_paused == (what == "pause"):
                    raise Refused(409, f"container {container.id} cannot {what}")
                container.is_paused = what == "pause"
                return 204, "text/plain", b""
            case "POST", "kill":
                if container.layer is not None:
                    raise Refused(409, "is not running")
                container.layer = await container.box.snapshot()
                return 204, "text/plain", b""
            case "PUT", "archive":
                with tempfile.NamedTemporaryFile(dir=self._place.name) as file:
                    file.write(body)
                    file.flush()
                    where = query["path"]
                    await container.box.put(Path(file.name), "/tmp/.archive")
                    done = await container.box.exec(
                        f"tar -xf /tmp/.archive --no-same-owner -C {shlex.quote(where)} && rm /tmp/.archive",
                        timeout_s=60,
                    )
                if done.rc:
                    raise Refused(400, done.stderr.decode())
                return 200, "text/plain", b""
            case (("GET" | "HEAD"), "archive"):
                return self._read(container, query["path"], method)
            case ("DELETE",):
                if container.box is not None:
                    await container.box.close()
                if container.layer is not None:
                    container.layer.close()
                del self.containers[container.id]
                return 204, "text/plain", b""
        raise Refused(404, "page not found")

    def _read(self, container, path, method):
        directories = container.layer.directories if container.layer else container.box._directories
        _, top, *below = path.split("/")
        host = Path(directories.get("/" + top, "/nowhere"), *below)
        if not host.exists():
            raise Refused(404, f"Could not find the file {path}")
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            archive.add(host, arcname=host.name if below else top)
        size, mode = host.stat().st_size, host.stat().st_mode & 0o777
        stat = {
            "name": host.name,
            "size": size,
            "mode": mode,
            "mtime": "2026-01-01T00:00:00Z",
            "linkTarget": "",
        }
        header = base64.b64encode(json.dumps(stat).encode()).decode()
        return 200, "application/x-tar", (f"X-Docker-Container-Path-Stat: {header}\r\n", data.getvalue())

    @staticmethod
    def _json(value, *, status=200):
        return status, "application/json", json.dumps(value).encode() + b"\n"
