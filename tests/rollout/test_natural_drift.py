"""Real tokenizers: what a model samples is not always what encoding its text gives, and is trained all the same.

Slow, and skipped with what to install where the packages are missing. The sampled numbers are printed with -s.
"""

import asyncio
from collections import Counter

import aiohttp
import numpy as np
import pytest

from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import ChatTokenizer
from t1core.campaign.demonstrations import demonstration_texts
from t1core.records import ModelCall, PrefixRelation, RowStatus
from t1core.rollout.chat import ChatFormat, ChatServer, SessionSettings, serving
from t1core.tito import assemble, audit
from tests.rollout import real_models

NUM_CONVERSATIONS, NUM_TURNS, NUM_SAMPLED = 12, 2, 24
QUESTIONS = (
    "Write a bash command that counts the number of lines in data.txt.",
    "It printed: 12 data.txt. Now write one that prints only the 3 longest lines.",
)


async def _converse(address: str, name: str) -> tuple[list[list[int]], dict]:
    messages: list[dict] = []
    sampled = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
        for question in QUESTIONS[:NUM_TURNS]:
            messages.append({"role": "user", "content": question})
            body = {"messages": messages, "return_token_ids": True}
            async with http.post(f"{address}/sessions/{name}/v1/chat/completions", json=body) as reply:
                (choice,) = (await reply.json())["choices"]
            messages.append(choice["message"])
            sampled.append(choice["token_ids"])
        async with http.post(f"{address}/sessions/{name}/end", json={"reward": 0}) as reply:
            return sampled, await reply.json()


@pytest.mark.slow
def test_smollm2_samples_that_do_not_survive_decoding_are_strict_when_ids_are_kept():
    import torch

    torch.set_num_threads(1)
    gguf = real_models.smollm2_gguf()
    tokenizer, model = real_models.smollm2_tokenizer(gguf), real_models.smollm2_model(gguf)
    chat = ChatFormat(tokenizer, template=gguf.fields["tokenizer.chat_template"])
    assert tokenizer.encode("a\n\n2.").tokens == ["a", "ĊĊ", "2", "."]

    async def run(history):
        engine = real_models.BatchingEngine(
            model, num_together=NUM_CONVERSATIONS, stop_token_ids=chat.stop_token_ids, seed=1
        )
        settings = SessionSettings(
            "smollm2", context_tokens=1024, max_new_tokens=NUM_SAMPLED, history=history
        )
        async with serving(ChatServer(engine, chat=chat, settings=settings)) as address:
            return await asyncio.gather(*(_converse(address, f"s{i}") for i in range(NUM_CONVERSATIONS)))

    for history in ("tokens", "rendered"):
        relations, survived, total = Counter(), 0, 0
        for sampled, ended in asyncio.run(run(history)):
            relations.update(ended["relations"])
            assert ended["num_delivered"] == ended["num_sampled"] == sum(map(len, sampled))
            for ids in sampled:
                text = chat.text_of(ids)
                survived += tokenizer.encode(text, add_special_tokens=False).ids == ids
                total += 1
        print(
            f"{history}: {total - survived} of {total} samples do not survive; boundaries {dict(relations)}"
        )
        assert total == NUM_CONVERSATIONS * NUM_TURNS and survived < total
        if history == "tokens":
            assert relations == {PrefixRelation.STRICT: NUM_CONVERSATIONS * (NUM_TURNS - 1)}
        else:
            assert relations[PrefixRelation.STRICT] < NUM_CONVERSATIONS * (NUM_TURNS - 1)


@pytest.mark.slow
def test_qwen3_splits_that_no_encoder_makes_are_strict_in_our_agents_history():
    plain, odd = (real_models.qwen3_tokenizer(dropout=dropout) for dropout in (None, 0.02))
    assert plain.encode("Hello, world! 2 ls -la\n").ids[:4] == [9707, 11, 1879, 0]
    tokenizer = ChatTokenizer(plain)
    texts = [text[200:260] for text in demonstration_texts(seed=0, count=12, wording=WORDINGS["full"])]
    relations, survived, num_sampled = Counter(), 0, 0
    for number, text in enumerate(texts):
        prompt, calls = tokenizer.first_prompt(text), []
        for turn in range(3):
            ids = np.append(odd.encode(text, add_special_tokens=False).ids, tokenizer.im_end).astype(np.int32)
            survived += np.array_equal(tokenizer.encode(tokenizer.decode(ids)), ids[:-1])
            num_sampled += 1
            n = len(ids)
            calls.append(
                ModelCall(
                    f"{number}/{turn}",
                    str(number),
                    None,
                    prompt,
                    ids,
                    np.full(n, -1, np.float32),
                    "stop",
                    0,
                    np.zeros(n, np.int32),
                    None,
                    0,
                )
            )
            prompt = np.concatenate([prompt, ids, tokenizer.reply("root@box:/app# ls", closed=True)])
        rows = assemble(calls, reward=0.0, status=RowStatus.COMPLETED, text_of=tokenizer.decode)
        found = audit(calls, rows, text_of=tokenizer.decode)
        assert found.problems == () and found.drift_frac == 0 and found.delivered_token_frac == 1
        relations.update(found.relations)
    print(f"{num_sampled - survived} of {num_sampled} texts do not survive; boundaries {dict(relations)}")
    assert relations == {PrefixRelation.STRICT: 24} and 0 < survived < num_sampled
