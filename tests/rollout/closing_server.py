"""An HTTP server on 127.0.0.1 that keeps connections open in word and closes each when its second request is on the
way, as a server does that takes a connection for idle just then.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Closing:
    """The address, the paths asked for in turn, lost requests among them, and how many of those were answered."""

    url: str = ""
    paths: list[str] = field(default_factory=list)
    num_answered: int = 0


@contextlib.asynccontextmanager
async def closing(answer: Callable[[str], Any | None]) -> AsyncIterator[Closing]:
    """Serve `answer(path)` as JSON on the first request of a connection; None closes without an answer."""
    state = Closing()

    async def request(reader: asyncio.StreamReader) -> str:
        first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        sizes = [line.split(":")[1] for line in rest if line.startswith("content-length:")]
        await reader.readexactly(int(sizes[0]) if sizes else 0)
        return first.split()[1]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            state.paths.append(await request(reader))
            said = answer(state.paths[-1])
            if said is not None:
                body = json.dumps(said).encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
                state.num_answered += 1
                state.paths.append(await request(reader))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
    finally:
        server.close()
