"""The chat server: OpenAI's chat completions over HTTP, a session a conversation, every call captured as ids.

    POST /v1/chat/completions                        session named by X-Session-ID, or "session_id" in the body
    POST /sessions/{session}/v1/chat/completions     the same, for clients that can only be given a base address
    POST /sessions/{session}/end                     {"reward": r}: assemble, audit, keep the rows; forget the session
    DELETE /sessions/{session}                       forget the session, keep nothing
    GET  /v1/models, /health

With "return_token_ids" an answer carries `prompt_token_ids` and `token_ids` as vLLM's does, which is where Harbor
looks for them. Streaming, several choices and stop strings are refused.
"""

import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from t1core.records import Batch, RowStatus, SamplingParams
from t1core.rollout.chat.message import check_messages
from t1core.rollout.chat.session import Answer, History, Session
from t1core.rollout.chat.template import ChatFormat
from t1core.rollout.engine import Engine, EngineDead, EngineRefused
from t1core.routing import MissingRoutes
from t1core.store.token_file import write_tokens
from t1core.tito import UnresolvedRetry, assemble, audit

_LARGEST_REQUEST_BYTES = 64 * 2**20


@dataclass(frozen=True)
class SessionSettings:
    """context_tokens: prompt plus answer of a call. max_new_tokens: of an answer, where a request does not say.
    rows_dir: where ended sessions' rows go, one token file each. any_sampling: also serve requests at another
    temperature than 1 or with top-p or top-k, whose captures must not be trained.
    """

    model_name: str
    context_tokens: int
    max_new_tokens: int
    history: History = "tokens"
    rows_dir: Path | None = None
    any_sampling: bool = False

    def __post_init__(self) -> None:
        if self.any_sampling and self.rows_dir is not None:
            raise ValueError(
                f"rows_dir={self.rows_dir} would keep rows for training, and any_sampling serves answers that must not "
                "be trained; leave one of them out"
            )


class _Refusal(Exception):
    """An answer with an error status, in OpenAI's form."""

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class ChatServer:
    """Sessions in front of one engine, on the event loop that serves them."""

    def __init__(self, engine: Engine, *, chat: ChatFormat, settings: SessionSettings) -> None:
        self._engine = engine
        self._chat = chat
        self._settings = settings
        self._sessions: dict[str, Session] = {}

    def app(self) -> web.Application:
        app = web.Application(middlewares=[_answer_errors], client_max_size=_LARGEST_REQUEST_BYTES)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._complete),
                web.post("/sessions/{session}/v1/chat/completions", self._complete),
                web.post("/sessions/{session}/end", self._end),
                web.delete("/sessions/{session}", self._delete),
                web.get("/v1/models", self._models),
                web.get("/sessions/{session}/v1/models", self._models),
                web.get("/health", self._health),
            ]
        )
        return app

    async def _complete(self, request: web.Request) -> web.Response:
        body = await _body(request)
        name = (
            request.match_info.get("session") or request.headers.get("X-Session-ID") or body.get("session_id")
        )
        if not name:
            raise _Refusal(
                "no session: send the header X-Session-ID, session_id in the body, or use the base address "
                "/sessions/NAME/v1"
            )
        messages, tools = check_messages(body.get("messages")), body.get("tools") or None
        session = self._sessions.setdefault(
            str(name), Session(str(name), chat=self._chat, history=self._settings.history)
        )
        prompt = session.prompt(messages, tools=tools)
        sampling = self._sampling(body, num_prompt_tokens=len(prompt.ids))
        answer = await session.ask(
            messages, prompt=prompt, tools=tools, sampling=sampling, generate=self._engine.generate
        )
        if answer.message is None:
            raise _Refusal("the engine aborted the request; ask again", status=503, code="aborted")
        return web.json_response(self._completion(answer, body))

    def _sampling(self, body: dict[str, Any], *, num_prompt_tokens: int) -> SamplingParams:
        for field, only in (("stream", False), ("n", 1), ("stop", [])):
            if body.get(field) not in (None, only):
                raise _Refusal(f"{field}={body[field]!r} is not served; leave it out or send {only!r}")
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or self._settings.max_new_tokens
        if not isinstance(wanted, int) or wanted < 1:
            raise _Refusal(f"max_tokens={wanted!r}; ask for a whole number of tokens, at least 1")
        if num_prompt_tokens + wanted > self._settings.context_tokens:
            raise _Refusal(
                f"This model's maximum context length is {self._settings.context_tokens} tokens; the messages have "
                f"{num_prompt_tokens} and {wanted} were asked for",
                code="context_length_exceeded",
            )
        given = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
        for name, whole in given.items():
            value = body.get(name)
            if value is not None and value != whole and not self._settings.any_sampling:
                raise _Refusal(
                    f"{name}={value}: what is captured here is trained, and the trainer scores temperature 1 and the "
                    f"whole distribution; leave {name} out, or start the server with any sampling allowed"
                )
            given[name] = whole if value is None else value
        return SamplingParams(
            max_new_tokens=int(wanted),
            stop_token_ids=self._chat.stop_token_ids,
            sampling_seed=body.get("seed"),
            **given,
        )

    def _completion(self, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        call, message = answer.call, answer.message
        assert message is not None
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if message.get("tool_calls") else call.finish_reason,
            "logprobs": None,
        }
        if body.get("logprobs"):
            texts = [self._chat.text_of([token]) for token in call.completion_token_ids]
            choice["logprobs"] = {
                "content": [
                    {
                        "token": text,
                        "logprob": float(logprob),
                        "bytes": list(text.encode()),
                        "top_logprobs": [],
                    }
                    for text, logprob in zip(texts, call.logprobs, strict=True)
                ]
            }
        prompt_tokens, sampled = len(call.prompt_token_ids), len(call.completion_token_ids)
        completion = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._settings.model_name,
            "choices": [choice],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": sampled,
                "total_tokens": prompt_tokens + sampled,
                "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
            },
        }
        if body.get("return_token_ids"):
            choice["token_ids"] = call.completion_token_ids.tolist()
            completion["prompt_token_ids"] = call.prompt_token_ids.tolist()
        return completion

    async def _end(self, request: web.Request) -> web.Response:
        """Assemble and audit. A session that can't be assembled is kept, so that nothing is lost by asking."""
        body, session = await _body(request), self._session(request)
        if not isinstance(body.get("reward"), int | float):
            raise _Refusal("reward is missing; send the trial's reward as a number")
        status = body.get("status", RowStatus.COMPLETED)
        if status not in list(RowStatus):
            raise _Refusal(f"status={status!r} is not one of {', '.join(RowStatus)}")
        try:
            rows = assemble(
                session.calls,
                reward=float(body["reward"]),
                status=RowStatus(status),
                text_of=self._chat.text_of,
            )
        except (UnresolvedRetry, MissingRoutes) as error:
            raise _Refusal(str(error), status=409, code=type(error).__name__) from error
        found = audit(session.calls, rows, text_of=self._chat.text_of)
        assert not found.problems, f"session {session.session_id}: the audit found {found.problems[:3]}"
        path = None
        if self._settings.rows_dir is not None and rows:
            name = "".join(c if c.isalnum() or c in "-_." else "_" for c in session.session_id)
            path = self._settings.rows_dir / f"{name}-{uuid.uuid4().hex[:8]}.safetensors"
            batch = Batch.from_rows(rows, step=0, num_tests=[int(body.get("num_tests", 0))] * len(rows))
            write_tokens(path, batch, per_token={}, spans=[row.spans for row in rows])
        await self._forget(session.session_id)
        return web.json_response(
            {
                "session_id": session.session_id,
                "num_rows": len(rows),
                "num_calls": len(session.calls),
                "num_loss_tokens": found.num_loss_tokens,
                "num_delivered": found.num_delivered,
                "num_sampled": found.num_sampled,
                "relations": {str(relation): count for relation, count in found.relations.items()},
                "file": str(path) if path else None,
            }
        )

    async def _delete(self, request: web.Request) -> web.Response:
        await self._forget(self._session(request).session_id)
        return web.json_response({})

    async def _forget(self, session_id: str) -> None:
        del self._sessions[session_id]
        await self._engine.release_session(session_id)

    def _session(self, request: web.Request) -> Session:
        name = request.match_info["session"]
        if name not in self._sessions:
            raise _Refusal(f"no session {name!r}", status=404, code="no_session")
        return self._sessions[name]

    async def _models(self, request: web.Request) -> web.Response:
        one = {"id": self._settings.model_name, "object": "model", "created": 0, "owned_by": "t1core"}
        return web.json_response({"object": "list", "data": [one]})

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response(await self._engine.health() | {"open_sessions": len(self._sessions)})


@contextlib.asynccontextmanager
async def serving(server: ChatServer, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve until the block ends; gives the address. Port 0 takes a free one. A client that hangs up aborts its
    call.
    """
    runner = web.AppRunner(server.app(), handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise _Refusal("the body is not JSON") from error
    if not isinstance(body, dict):
        raise _Refusal("the body is no JSON object")
    return body


@web.middleware
async def _answer_errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        return await handler(request)
    except _Refusal as error:
        status, code = error.status, error.code
        message = str(error)
    except EngineDead as error:
        status, code, message = 503, "engine_dead", str(error)
    except (EngineRefused, ValueError) as error:
        status, code, message = 400, "invalid_request", str(error)
    body = {"error": {"message": message, "type": "invalid_request_error", "code": code}}
    return web.json_response(body, status=status)
