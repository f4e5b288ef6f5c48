"""A model directory behind the chat server: `t1 serve MODEL`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from t1core.rollout.chat.server import ChatServer, SessionSettings, serving
from t1core.rollout.chat.template import ChatFormat
from t1core.rollout.embedded import EmbeddedEngine


async def serve_model(
    model_dir: Path,
    *,
    settings: SessionSettings,
    host: str,
    port: int,
    dtype: Literal["bfloat16", "float32"],
    say: Callable[[str], None],
) -> None:
    """Serve the embedded engine until cancelled. ValueError for a directory or settings that can't be used."""
    if settings.max_new_tokens >= settings.context_tokens:
        raise ValueError(
            f"max_new_tokens={settings.max_new_tokens} leaves no room for a prompt in context_tokens="
            f"{settings.context_tokens}; raise context_tokens"
        )
    chat = ChatFormat.load(model_dir)
    engine = EmbeddedEngine(model_dir, dtype=dtype, max_context=settings.context_tokens)
    try:
        async with serving(ChatServer(engine, chat=chat, settings=settings), host=host, port=port) as address:
            say(
                f"{settings.model_name} answers at {address}/v1 and, a session each, at {address}/sessions/NAME/v1"
            )
            await asyncio.Event().wait()
    finally:
        await engine.close()
