"""HTTP to one SGLang server: deadlines, and what a status or a broken connection means in the engine's
terms.
"""

import asyncio
import json
from typing import Any

import aiohttp

from t1core.rollout.engine import EngineDead, EngineRefused
from t1core.rollout.sglang.server import Server

_ENDING_CHECKS = 25


class Client:
    """Exchanges with a server, each on a connection of its own. 4xx raises EngineRefused; 5xx, a broken connection or a
    passed deadline raise EngineDead, with the end of the server's log where its process has ended."""

    def __init__(self, server: Server, *, url: str, deadline_s: float) -> None:
        self.url = url
        self._server = server
        self._deadline_s = deadline_s
        self._is_closed = False
        # A kept connection can meet its server as that closes it for idleness, after 5 s with uvicorn: the request is
        # lost like that of a dead server, and a second try might sample or load weights twice. On a new connection a
        # loss is the server's.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def control(self, path: str, **body: Any) -> Any:
        """POST a control call, under the deadline. Returns the decoded JSON, or a plain answer's text."""
        return await self._exchange("POST", path, deadline_s=self._deadline_s, body=body)

    async def bulk(self, path: str, **body: Any) -> Any:
        """POST a call that moves weights or samples: no deadline, a dead server closes the connection."""
        return await self._exchange("POST", path, deadline_s=None, body=body)

    async def get(self, path: str) -> Any:
        """GET, under the deadline."""
        return await self._exchange("GET", path, deadline_s=self._deadline_s, body=None)

    async def is_ready(self) -> bool:
        """True once the HTTP side answers, which SGLang opens after its scheduler has loaded the model."""
        try:
            timeout = aiohttp.ClientTimeout(total=5)
            async with self._http.get(f"{self.url}/health", timeout=timeout) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def close(self) -> None:
        """Close every connection; calls under way and later ones raise EngineDead."""
        self._is_closed = True
        await self._http.close()

    async def _exchange(self, method: str, path: str, *, deadline_s: float | None, body: Any) -> Any:
        name = self._server.name
        if self._is_closed:
            raise EngineDead(f"{name} is closed")
        timeout = aiohttp.ClientTimeout(total=deadline_s)
        try:
            async with self._http.request(method, self.url + path, json=body, timeout=timeout) as response:
                text = await response.text()
                status, is_json = response.status, response.content_type == "application/json"
        except TimeoutError as error:
            raise EngineDead(f"{name}: no answer to {path} within {deadline_s:g} s") from error
        except aiohttp.ClientError as error:
            # The process ends some time after its socket, and only its log says why: a scheduler that crashes takes
            # the server with it.
            for _ in range(_ENDING_CHECKS):
                if self._is_closed:
                    break
                self._server.check_alive()
                await asyncio.sleep(0.2)
            raise EngineDead(f"{name}: lost the SGLang server at {path}: {error!r}") from error
        if status >= 500:
            raise EngineDead(f"{name}: {path} answered {status}: {text[:500]}")
        if status >= 400:
            raise EngineRefused(f"{path} answered {status}: {text[:500]}")
        return json.loads(text) if is_json else text
