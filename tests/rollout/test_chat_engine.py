"""The chat server in front of the embedded engine: what a random nano policy samples, over HTTP."""

import asyncio
from dataclasses import replace
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from tokenizers import Tokenizer

from t1core.campaign.report import audit_lines
from t1core.records import Batch, RowStatus, SamplingParams
from t1core.rollout.chat import ChatFormat, ChatServer, SessionSettings, serving
from t1core.rollout.chat.session import Session
from t1core.store import Run
from t1core.store.token_file import read_batch
from t1core.tito import assemble
from tests.rollout.served import nano_policy, post, serve
from tests.store.records_by_hand import trial


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return nano_policy(tmp_path_factory.mktemp("nano"))


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


def test_what_the_engine_captured_passes_the_audit_of_the_run_it_was_stored_in(model, tmp_path):
    from t1core.rollout.embedded import EmbeddedEngine

    async def body():
        chat = ChatFormat.load(model)
        session = Session("a", chat=chat, history="tokens")
        engine = EmbeddedEngine(model, dtype="float32", max_context=256)
        sampling = SamplingParams(max_new_tokens=12, stop_token_ids=chat.stop_token_ids, sampling_seed=3)
        messages = [{"role": "user", "content": "go"}]
        try:
            for _ in range(2):
                prompt = session.prompt(messages, tools=None)
                answer = await session.ask(
                    messages, prompt=prompt, tools=None, sampling=sampling, generate=engine.generate
                )
                messages = [*messages, answer.message, {"role": "user", "content": "on"}]
        finally:
            await engine.close()
        return session.calls

    calls = asyncio.run(asyncio.wait_for(body(), timeout=600))
    rows = assemble(calls, reward=0.1, status=RowStatus.COMPLETED)
    batch = Batch.from_rows(rows, step=0, num_tests=[4])
    for name, made in (
        ("kept", batch),
        ("turned", replace(batch, routed_experts=batch.routed_experts[::-1])),
    ):
        run = Run.create(tmp_path, campaign="demo", run_name=name, config={}, provenance={})
        run.record_trajectories([replace(trial("a"), calls=calls, turns=())], step=0)
        run.record_tokens(made, per_token={}, spans=[row.spans for row in rows])
        if name == "kept":
            assert list(audit_lines(run))[-1].endswith("are as they were sampled")
        else:
            with pytest.raises(ValueError, match="routes of call a/0 are not those captured"):
                list(audit_lines(run))


@pytest.mark.slow
def test_the_command_serves_a_model_until_it_is_stopped(model, tmp_path):
    options = ["--context-tokens", "256", "--max-new-tokens", "16", "--rows-dir", str(tmp_path / "rows")]
    with serve(model, *options) as address:
        body = {"messages": [{"role": "user", "content": "hello"}], "session_id": "a"}
        post(f"{address}/v1/chat/completions", body)
        told = post(f"{address}/sessions/a/end", {"reward": 1})
        assert told["num_rows"] == 1 and Path(told["file"]).parent == tmp_path / "rows"
