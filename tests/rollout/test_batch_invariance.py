"""A batch-invariant engine answers a request with the same bits whatever runs beside it."""

import asyncio

import numpy as np
import pytest
from test_engine import VOCAB, checkpoint  # noqa: F401

from t1core.records import SamplingParams
from t1core.rollout.embedded import EmbeddedEngine


def prompts():
    rng = np.random.default_rng(0)
    shared = rng.integers(0, VOCAB, 70)
    return [np.concatenate([shared, rng.integers(0, VOCAB, n)]).astype(np.int32) for n in (5, 40, 9, 23)]


async def answers(model, *, together, invariant, dtype):
    engine = EmbeddedEngine(model, dtype=dtype, max_context=512, batch_invariant=invariant)

    async def ask(i, prompt):
        sampling = SamplingParams(max_new_tokens=12 + i, sampling_seed=i)
        first = await engine.generate(prompt, sampling=sampling, request_id=f"{i}/0", session_id=str(i))
        longer = np.concatenate([prompt, first.output_ids, prompt[:7]])
        second = await engine.generate(longer, sampling=sampling, request_id=f"{i}/1", session_id=str(i))
        return first, second

    try:
        if together:
            return await asyncio.gather(*(ask(i, prompt) for i, prompt in enumerate(prompts())))
        return [await ask(i, prompt) for i, prompt in enumerate(prompts())]
    finally:
        await engine.close()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_alone_and_beside_others_the_answer_has_the_same_bits(checkpoint, dtype):  # noqa: F811
    alone = asyncio.run(answers(checkpoint, together=False, invariant=True, dtype=dtype))
    beside = asyncio.run(answers(checkpoint, together=True, invariant=True, dtype=dtype))
    for mine, theirs in zip(alone, beside, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.output_ids.tolist() == b.output_ids.tolist()
            assert a.output_logprobs.tobytes() == b.output_logprobs.tobytes()
            assert np.array_equal(a.routed_experts, b.routed_experts)


def test_without_it_neighbours_reach_the_last_bits(checkpoint):  # noqa: F811
    alone = asyncio.run(answers(checkpoint, together=False, invariant=False, dtype="float32"))
    beside = asyncio.run(answers(checkpoint, together=True, invariant=False, dtype="float32"))
    pairs = [
        (a, b) for mine, theirs in zip(alone, beside, strict=True) for a, b in zip(mine, theirs, strict=True)
    ]
    assert any(a.output_logprobs.tobytes() != b.output_logprobs.tobytes() for a, b in pairs)
