"""The chat server in front of the embedded engine: what a random nano policy samples, over HTTP."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from tokenizers import Tokenizer

from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import train_tokenizer
from t1core.campaign.demonstrations import demonstration_texts
from t1core.rollout.chat import ChatFormat, ChatServer, SessionSettings, serving
from t1core.store.token_file import read_batch


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    from t1core.model.checkpoint import init_hf
    from t1core.model.shape import ModelShape

    directory = tmp_path_factory.mktemp("nano")
    texts = demonstration_texts(seed=0, count=100, wording=WORDINGS["compact"])
    vocab_size = train_tokenizer(texts, directory, vocab_size=512).vocab_size
    init_hf(ModelShape.nano(vocab_size=vocab_size), directory, seed=0)
    return directory


async def converse(address: str, name: str, *, num_turns: int) -> list[dict]:
    """A conversation that gives every answer back stripped of outer blanks; returns the replies and the end."""
    messages, replies = [{"role": "user", "content": f"task of {name}"}], []
    async with aiohttp.ClientSession() as http:
        for turn in range(num_turns):
            body = {"messages": messages, "max_tokens": 24, "seed": turn, "return_token_ids": True}
            async with http.post(f"{address}/sessions/{name}/v1/chat/completions", json=body) as reply:
                replies.append(await reply.json())
                assert reply.status == 200, replies[-1]
            text = replies[-1]["choices"][0]["message"]["content"]
            messages += [
                {"role": "assistant", "content": text.strip()},
                {"role": "user", "content": f"seen {turn}"},
            ]
        async with http.post(f"{address}/sessions/{name}/end", json={"reward": 0.25}) as reply:
            return [*replies, await reply.json()]


def test_what_does_not_survive_decoding_and_encoding_is_trained_as_sampled_all_the_same(model, tmp_path):
    from t1core.rollout.embedded import EmbeddedEngine

    async def body():
        chat = ChatFormat.load(model)
        engine = EmbeddedEngine(model, dtype="float32", max_context=512)
        settings = SessionSettings(
            model_name="nano", context_tokens=512, max_new_tokens=24, rows_dir=tmp_path
        )
        try:
            async with serving(ChatServer(engine, chat=chat, settings=settings)) as address:
                names = [f"trial-{i}" for i in range(3)]
                return chat, await asyncio.gather(*(converse(address, name, num_turns=3) for name in names))
        finally:
            await engine.close()

    chat, conversations = asyncio.run(asyncio.wait_for(body(), timeout=600))
    num_drifted, tokenizer = 0, Tokenizer.from_file(str(model / "tokenizer.json"))
    for *replies, ended in conversations:
        sampled = [reply["choices"][0]["token_ids"] for reply in replies]
        assert ended["relations"] == {"strict": 2} and ended["num_rows"] == 1
        assert ended["num_delivered"] == ended["num_sampled"] == ended["num_loss_tokens"]
        batch, _ = read_batch(Path(ended["file"]))
        assert batch.tokens[batch.loss_mask == 1].tolist() == [token for one in sampled for token in one]
        assert len(batch.routed_experts) == batch.num_tokens - 1
        assert np.isfinite(batch.rollout_log_probs).all() and batch.rewards.tolist() == [0.25]
        for ids in sampled:
            again = tokenizer.encode(chat.text_of(ids)).ids
            num_drifted += again != ids
    assert num_drifted > 4  # most of nine answers


@pytest.mark.slow
def test_the_command_serves_a_model_until_it_is_stopped(model, tmp_path):
    command = [sys.executable, "-m", "t1core.cli", "serve", str(model), "--port", "0", "--context-tokens"]
    options = ["256", "--max-new-tokens", "16", "--rows-dir", str(tmp_path / "rows")]
    served = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    try:
        address = served.stdout.readline().split(" answers at ")[1].split("/v1")[0]
        body = {"messages": [{"role": "user", "content": "hello"}], "session_id": "a"}
        for path, content in (("/v1/chat/completions", body), ("/sessions/a/end", {"reward": 1})):
            request = urllib.request.Request(address + path, data=json.dumps(content).encode())
            with urllib.request.urlopen(request, timeout=120) as reply:
                told = json.load(reply)
        assert told["num_rows"] == 1 and Path(told["file"]).parent == tmp_path / "rows"
    finally:
        served.send_signal(signal.SIGTERM)
        assert served.wait(timeout=120) == 130
