"""The part of Docker's Engine API that boxes need, over the daemon's UNIX socket: one request a connection.

https://docs.docker.com/reference/api/engine/
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

API_VERSION = (1, 44)  # asked for at most; an older daemon's own where it knows less
CONNECT_DEADLINE_S, CALL_DEADLINE_S, ARCHIVE_DEADLINE_S = 20.0, 60.0, 900.0
MAX_ANSWER_BYTES = 64 << 20
_READ_BYTES = 1 << 16


class DockerError(RuntimeError):
    """The daemon said no: `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"Docker: {message} ({status})")
        self.status, self.message = status, message


class DockerSilent(RuntimeError):
    """No daemon answers at the socket, or it hung up."""


def socket_path() -> Path:
    """Where the daemon's socket is: DOCKER_HOST, or Docker's own place. Raises ValueError for a DOCKER_HOST that is no
    UNIX socket."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    kind, _, path = host.partition("://")
    if kind != "unix" or not path:
        raise ValueError(
            f"DOCKER_HOST {host!r}: boxes speak to a UNIX socket; set unix:///path/of/the/socket"
        )
    return Path(path)


class DockerApi:
    """Requests to one daemon."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._prefix = ""

    async def connect(self) -> str:
        """Agree on a version of the API; returns the daemon's own. Raises DockerSilent."""
        headers = {}
        async with self._within(CONNECT_DEADLINE_S):
            await self._whole("GET", "/_ping", headers_out=headers)
        known = headers.get("api-version", "1.24")
        version = min(API_VERSION, tuple(int(word) for word in known.split(".")))
        self._prefix = "/v" + ".".join(map(str, version))
        return known

    async def call(self, method: str, path: str, /, *, body: Any = None, **query: str) -> Any:
        """Send JSON, get JSON: None for an empty answer. Raises DockerError, DockerSilent."""
        content = b"" if body is None else json.dumps(body).encode()
        async with self._within(CALL_DEADLINE_S):
            answer = await self._whole(method, self._at(path, query), content, "application/json")
        return json.loads(answer) if answer.strip() else None

    async def send_archive(self, method: str, path: str, archive: bytes, /, **query: str) -> bytes:
        """Send a tar archive; the whole answer. Raises DockerError, DockerSilent."""
        async with self._within(ARCHIVE_DEADLINE_S):
            return await self._whole(method, self._at(path, query), archive, "application/x-tar")

    @contextlib.asynccontextmanager
    async def _within(self, deadline_s: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline_s):
                yield
        except TimeoutError:
            raise DockerSilent(
                f"the Docker daemon at {self._path} did not answer within {deadline_s:g} s"
            ) from None

    async def stream(
        self, method: str, path: str, /, *, body: Any = None, **query: str
    ) -> AsyncIterator[bytes]:
        """The answer's body, in pieces. Raises DockerError, DockerSilent."""
        content = b"" if body is None else json.dumps(body).encode()
        async for piece in self._request(method, self._at(path, query), content, "application/json", {}):
            yield piece

    async def output(self, exec_id: str) -> bytes:
        """Start an exec and wait for its end: what it wrote to stdout. Raises DockerError, DockerSilent."""
        raw = bytearray()
        async for piece in self.stream(
            "POST", f"/exec/{exec_id}/start", body={"Detach": False, "Tty": False}
        ):
            raw += piece
            if len(raw) > MAX_ANSWER_BYTES:
                raise DockerError(0, f"a command wrote more than {MAX_ANSWER_BYTES} bytes")
        return _stdout(bytes(raw))

    def _at(self, path: str, query: Mapping[str, str]) -> str:
        return self._prefix + quote(path) + ("?" + urlencode(query) if query else "")

    async def _whole(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        kind: str = "",
        headers_out: dict[str, str] | None = None,
    ) -> bytes:
        headers = {} if headers_out is None else headers_out
        answer = bytearray()
        async for piece in self._request(method, target, body, kind, headers):
            answer += piece
            if len(answer) > MAX_ANSWER_BYTES:
                raise DockerError(0, f"an answer of more than {MAX_ANSWER_BYTES} bytes to {target}")
        return bytes(answer)

    async def _request(
        self, method: str, target: str, body: bytes, kind: str, headers: dict[str, str]
    ) -> AsyncIterator[bytes]:
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                reader, writer = await asyncio.open_unix_connection(self._path)
        except (OSError, TimeoutError) as error:
            raise DockerSilent(f"no Docker daemon answers at {self._path}: {error}") from None
        try:
            lines = [
                f"{method} {target} HTTP/1.1",
                "Host: docker",
                "Connection: close",
                f"Content-Length: {len(body)}",
            ]
            lines += [f"Content-Type: {kind}"] if body else []
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await writer.drain()
            status = int((await reader.readline()).split()[1])
            while line := (await reader.readline()).strip():
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip()
            pieces = _body(reader, headers)
            if status >= 400:
                text = b"".join([piece async for piece in pieces])
                raise DockerError(status, _message(text))
            async for piece in pieces:
                yield piece
        except (OSError, IndexError, ValueError, asyncio.IncompleteReadError) as error:
            raise DockerSilent(
                f"the Docker daemon at {self._path} hung up on {method} {target}: {error!r}"
            ) from None
        finally:
            writer.close()


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """A body by its length, in chunks, or to the connection's end."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        while size := int((await reader.readline()).partition(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readline()
    elif "content-length" in headers:
        left = int(headers["content-length"])
        while left:
            piece = await reader.read(min(left, _READ_BYTES))
            if not piece:
                raise ValueError("the answer ends early")
            left -= len(piece)
            yield piece
    else:
        while piece := await reader.read(_READ_BYTES):
            yield piece


def _stdout(raw: bytes) -> bytes:
    """stdout of a multiplexed stream: frames of one byte that says which, three of nothing, four of the length."""
    out, at = [], 0
    while at + 8 <= len(raw):
        size = int.from_bytes(raw[at + 4 : at + 8], "big")
        if raw[at] == 1:
            out.append(raw[at + 8 : at + 8 + size])
        at += 8 + size
    return b"".join(out)


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return text[:500].decode(errors="replace").strip() or "no reason given"
