"""An OpenAI-compatible chat endpoint: bounded tries, what each call costs, and every failure by its kind.

    busy (429), broken (5xx), silent, unreachable, or no chat completion  -> asked again, at growing intervals
    any other refusal (4xx)                                                -> EndpointFailed at once

Calls carry X-Session-ID, which names the conversation to servers that keep sessions (`t1 serve` does) and which others
ignore.
"""

import asyncio
import contextlib
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import aiohttp

Message = Mapping[str, str]
_MAX_SAID = 300  # characters of a server's words that an error repeats
_OWN = "t1core"  # what `t1 serve` says of its models


class FailureKind(StrEnum):
    """What was wrong with one call: of the way there, then of the answer."""

    REFUSED = "refused"  # a 4xx that asking again will not change
    BUSY = "busy"  # 429
    BROKEN = "broken"  # 5xx
    UNREACHABLE = "unreachable"  # no connection, or one that was cut
    SLOW = "slow"  # no answer within the deadline
    UNREADABLE = "unreadable"  # a body that is no chat completion
    NO_JSON = "no_json"  # an answer without a JSON object
    CUT = "cut"  # a JSON object that ends too early
    INVALID = "invalid"  # a JSON object of another form, or against the rules


@dataclass(frozen=True)
class Cost:
    """What calls took. Tokens are the server's own count; `seconds` are waits for answers, added up over calls.
    `failures` counts failed calls by kind, also those made good by asking again."""

    num_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    failures: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Self) -> Self:
        kinds = sorted({*self.failures, *other.failures})
        return type(self)(
            num_calls=self.num_calls + other.num_calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            seconds=self.seconds + other.seconds,
            failures={kind: self.failures.get(kind, 0) + other.failures.get(kind, 0) for kind in kinds},
        )


class EndpointFailed(RuntimeError):
    """No usable answer. `kind` is that of the last failure, `cost` what was spent in vain."""

    def __init__(self, message: str, *, kind: FailureKind, cost: Cost) -> None:
        super().__init__(message)
        self.kind, self.cost = kind, cost


@dataclass(frozen=True)
class EndpointSettings:
    """Where to ask and how long to insist.

    `url` is the base address, which ends in /v1 with most servers. `api_key_env` names the environment variable with
    the key, which is never stored. `timeout_s` bounds one call, `max_tries` the calls for one answer, `retry_wait_s`
    the first wait between them; it doubles up to `max_wait_s`, which also bounds the server's Retry-After.
    `temperature` None leaves it to the server. `with_schema` asks the server to keep to the JSON schema; what it says
    is checked either way.
    """

    url: str
    model: str
    api_key_env: str = ""
    timeout_s: float = 120.0
    max_tries: int = 4
    retry_wait_s: float = 1.0
    max_wait_s: float = 30.0
    max_tokens: int = 2048
    temperature: float | None = None
    with_schema: bool = True

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"endpoint {self.url!r}: give its base address, as in http://127.0.0.1:8000/v1")
        for name in ("timeout_s", "max_tries", "max_tokens"):
            if getattr(self, name) <= 0:
                raise ValueError(f"endpoint {name}={getattr(self, name)} must be above 0")
        if self.retry_wait_s < 0 or self.max_wait_s < 0:
            raise ValueError(
                f"endpoint retry_wait_s={self.retry_wait_s}, max_wait_s={self.max_wait_s}: both must be at least 0"
            )
        if self.api_key_env and self.api_key_env not in os.environ:
            raise ValueError(
                f"endpoint api_key_env={self.api_key_env}: there is no such variable; export the key under that name"
            )


@dataclass(frozen=True)
class Reply:
    """One answer: its text, and why it ended ("stop", or "length" for one that was cut)."""

    text: str
    finish_reason: str
    cost: Cost


class ChatEndpoint:
    """Asks one model. Open it with `open_endpoint`."""

    def __init__(self, settings: EndpointSettings, session: aiohttp.ClientSession, *, forgets: bool) -> None:
        self.settings = settings
        self._session = session
        self._forgets = forgets

    @contextlib.asynccontextmanager
    async def conversation(self) -> AsyncIterator[str]:
        """A name for calls that belong together; the server is told when they are over, where it keeps sessions."""
        name = f"pool-{uuid.uuid4().hex}"
        try:
            yield name
        finally:
            if self._forgets:
                root = self.settings.url.rstrip("/").removesuffix("/v1")
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):  # it may be gone by now
                    async with self._session.delete(f"{root}/sessions/{name}"):
                        pass

    async def ask(
        self, messages: Sequence[Message], *, conversation: str, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        """One answer. Raises EndpointFailed when every try failed, or one was refused."""
        settings = self.settings
        body = self._body(messages, schema)
        cost, wait_s = Cost(), settings.retry_wait_s
        for number in range(1, settings.max_tries + 1):
            began = time.monotonic()
            tried = await self._try(body, conversation=conversation)
            seconds = time.monotonic() - began
            if isinstance(tried, _Answer):
                own = Cost(1, tried.prompt_tokens, tried.completion_tokens, seconds)
                return Reply(tried.text, tried.finish_reason, cost + own)
            cost += Cost(1, seconds=seconds, failures={tried.kind: 1})
            if tried.kind is FailureKind.REFUSED or number == settings.max_tries:
                tries = "1 try" if number == 1 else f"{number} tries"
                raise EndpointFailed(f"{tried.kind} after {tries}: {tried.said}", kind=tried.kind, cost=cost)
            await asyncio.sleep(min(max(wait_s, tried.retry_after_s), settings.max_wait_s))
            wait_s *= 2
        raise AssertionError("unreachable")

    def _body(self, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> dict[str, Any]:
        settings = self.settings
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": list(messages),
            "max_tokens": settings.max_tokens,
        }
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if schema is not None and settings.with_schema:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": dict(schema)},
            }
        return body

    async def _try(self, body: Mapping[str, Any], *, conversation: str) -> "_Answer | _Failure":
        url = f"{self.settings.url.rstrip('/')}/chat/completions"
        try:
            async with self._session.post(url, json=body, headers={"X-Session-ID": conversation}) as response:
                text = await response.text(errors="replace")
        except TimeoutError:
            return _Failure(FailureKind.SLOW, f"no answer within {self.settings.timeout_s:g} s")
        except aiohttp.ClientError as error:
            return _Failure(FailureKind.UNREACHABLE, f"{type(error).__name__}: {error}"[:_MAX_SAID])
        if response.status == 429:
            return _Failure(FailureKind.BUSY, _said(response.status, text), _retry_after_s(response.headers))
        if response.status >= 500:
            return _Failure(
                FailureKind.BROKEN, _said(response.status, text), _retry_after_s(response.headers)
            )
        if response.status >= 400:
            return _Failure(FailureKind.REFUSED, _said(response.status, text))
        return _read_completion(text)


@contextlib.asynccontextmanager
async def open_endpoint(settings: EndpointSettings) -> AsyncIterator[ChatEndpoint]:
    """Look whether the endpoint serves the model, then ask it until the block ends.

    Raises ValueError for an address that nothing answers at, and for a model that it does not list. A server that has
    no list of models is believed.
    """
    headers = {}
    if settings.api_key_env:
        headers["Authorization"] = f"Bearer {os.environ[settings.api_key_env]}"
    timeout = aiohttp.ClientTimeout(total=settings.timeout_s)
    # New connections alone: a kept one may be closed for idleness just as a call is sent, which would count as the
    # endpoint's failure.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
        models = await _models(session, settings)
        if models is not None and settings.model not in models:
            served = ", ".join(sorted(models)) or "none"
            raise ValueError(
                f"endpoint {settings.url} does not serve model {settings.model!r}; it has {served}"
            )
        yield ChatEndpoint(settings, session, forgets=(models or {}).get(settings.model) == _OWN)


async def _models(session: aiohttp.ClientSession, settings: EndpointSettings) -> dict[str, str] | None:
    """The served models with their owners; None where the server has no list that can be read."""
    try:
        async with session.get(f"{settings.url.rstrip('/')}/models") as response:
            if response.status != 200:
                return None
            listed = await response.json(content_type=None)
        return {str(one["id"]): str(one.get("owned_by", "")) for one in listed["data"]}
    except (TimeoutError, aiohttp.ClientConnectionError) as error:
        raise ValueError(
            f"endpoint {settings.url}: nothing answers there ({type(error).__name__}); start the server, or give the "
            "base address of one that runs"
        ) from error
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class _Answer:
    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class _Failure:
    kind: FailureKind
    said: str
    retry_after_s: float = 0.0


def _read_completion(text: str) -> _Answer | _Failure:
    try:
        completion = json.loads(text)
        choice = completion["choices"][0]
        content = choice["message"]["content"]
        usage = completion.get("usage") or {}
        if not isinstance(content, str):
            raise TypeError(f"content is {type(content).__name__}")
        return _Answer(
            text=content,
            finish_reason=str(choice.get("finish_reason")),
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        return _Failure(FailureKind.UNREADABLE, f"{type(error).__name__}: {error}: {text[:_MAX_SAID]!r}")


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds the server asks to wait; a date, which is allowed too, counts as not said."""
    try:
        return max(0.0, float(headers.get("Retry-After", 0)))
    except ValueError:
        return 0.0


def _said(status: int, text: str) -> str:
    return f"HTTP {status}: {' '.join(text.split())[:_MAX_SAID]}"
