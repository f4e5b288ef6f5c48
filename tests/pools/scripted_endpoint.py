"""A chat endpoint on 127.0.0.1 that answers from a script, badly where it says so, and notes what it was asked."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from t1core.pools.llm.endpoint import EndpointSettings
from t1core.pools.llm.rubric import DIMENSIONS

MODEL = "scripted"


@dataclass(frozen=True)
class Say:
    """An answer: text, or another status, or a raw body, after a wait."""

    text: str | None = ""
    finish_reason: str = "stop"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: str | None = None
    wait_s: float = 0.0


@dataclass
class Scripted:
    """The address, and every request body and header that came."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def settings(self, **changes: Any) -> EndpointSettings:
        given = {"url": self.url, "model": MODEL, "timeout_s": 20.0, "retry_wait_s": 0.0} | changes
        return EndpointSettings(**given)


@contextlib.asynccontextmanager
async def scripted(
    answer: list[Say] | Callable[[dict[str, Any]], Say], *, owner: str = "somebody", lists_models: bool = True
) -> AsyncIterator[Scripted]:
    """Serve answers: one a request from a list, or a function of the request's body."""
    state = Scripted()
    left = list(answer) if isinstance(answer, list) else None

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        state.asked.append(body)
        state.headers.append(dict(request.headers))
        assert left is None or left, "the script is at its end and one more was asked"
        say = left.pop(0) if left is not None else answer(body)
        await asyncio.sleep(say.wait_s)
        if say.status != 200:
            return web.Response(status=say.status, text="not now", headers=say.headers)
        if say.raw is not None:
            return web.Response(text=say.raw)
        message = {"role": "assistant", "content": say.text}
        return web.json_response(
            {
                "choices": [{"index": 0, "message": message, "finish_reason": say.finish_reason}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10},
            }
        )

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL, "owned_by": owner}]})

    async def end(request: web.Request) -> web.Response:
        state.ended.append(request.match_info["session"])
        return web.json_response({})

    app = web.Application()
    app.add_routes(
        [web.post("/v1/chat/completions", complete), web.delete("/sessions/{session}", end)]
        + ([web.get("/v1/models", models)] if lists_models else [])
    )
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    state.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield state
    finally:
        await runner.cleanup()


def audit_answer(score: int = 5, *, rejects: list[dict[str, str]] | None = None, **scores: int) -> str:
    """An answer of the audit: `score` in every dimension but those named."""
    given = {name: {"score": scores.get(name, score), "evidence": f"on {name}"} for name in DIMENSIONS}
    return json.dumps({"scores": given, "hard_rejects": rejects or []})
