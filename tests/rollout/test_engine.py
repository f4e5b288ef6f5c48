"""The embedded engine against plain transformers forwards of the same checkpoint, and the contract's
promises.
"""

import asyncio
import os
import threading

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

from t1core.records import SamplingParams
from t1core.rollout.embedded import EmbeddedEngine
from t1core.rollout.engine import Engine, EngineDead, EngineRefused
from t1core.rollout.faults import DyingEngine, SilentEngine

torch.set_num_threads(1)
VOCAB, LAYERS, TOP_K = 96, 4, 2


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random four-layer Qwen3.5-MoE with weights large enough that routing and sampling depend on the
    context.
    """
    torch.manual_seed(0)
    config = Qwen3_5MoeTextConfig(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=LAYERS, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=1,
        linear_num_value_heads=2, moe_intermediate_size=16, shared_expert_intermediate_size=16,
        num_experts_per_tok=TOP_K, num_experts=8, initializer_range=0.1,
    )  # fmt: skip
    directory = tmp_path_factory.mktemp("nano")
    Qwen3_5MoeForCausalLM(config).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def reference(checkpoint):
    return Reference(checkpoint)


class Reference:
    """A plain transformers forward over whole sequences, no cache."""

    def __init__(self, checkpoint):
        self.model = Qwen3_5MoeForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()

    def __call__(self, ids):
        """Log-probs [n, vocab] after each token, and routes [n, L, k], ids ascending."""
        with torch.inference_mode():
            out = self.model(torch.from_numpy(ids.astype(np.int64))[None], output_router_logits=True)
        routes = torch.stack(
            [r.topk(TOP_K, dim=-1).indices.sort(-1).values for r in out.router_logits], dim=1
        )
        return torch.log_softmax(out.logits[0].float(), -1).numpy(), routes.numpy()


def engine_test(**options):
    """Run an async test on a fresh float32 engine, and close it."""

    def wrap(test):
        def run(checkpoint, reference):
            async def body():
                engine = EmbeddedEngine(checkpoint, **{"dtype": "float32", "max_context": 2048, **options})
                try:
                    await asyncio.wait_for(test(engine, reference), timeout=120)
                finally:
                    await engine.close()

            asyncio.run(body())

        run.__name__ = test.__name__
        return run

    return wrap


def prompt(seed, length):
    return np.random.default_rng(seed).integers(0, VOCAB, length).astype(np.int32)


def params(n, **more):
    return SamplingParams(max_new_tokens=n, **more)


def assert_matches_reference(reference, ids, generation):
    """Log-probs and routes of a generation equal a plain forward over prompt + output."""
    full = np.concatenate([ids, generation.output_ids])
    logprobs, routes = reference(full)
    at = np.arange(len(ids) - 1, len(full) - 1)
    np.testing.assert_allclose(generation.output_logprobs, logprobs[at, generation.output_ids], atol=2e-5)
    np.testing.assert_array_equal(
        generation.routed_experts, routes[generation.routed_experts_start : len(full) - 1]
    )
    assert generation.routed_experts.dtype == np.uint8


@engine_test()
async def test_logprobs_and_routes_equal_a_plain_forward(engine, reference):
    assert isinstance(engine, Engine)
    for seed, length in ((0, 1), (1, 7), (2, 64), (3, 150)):
        ids = prompt(seed, length)
        generation = await engine.generate(ids, sampling=params(20), request_id=f"r{seed}")
        assert len(generation.output_ids) == 20 and generation.finish_reason == "length"
        assert_matches_reference(reference, ids, generation)


@engine_test()
async def test_a_prompt_longer_than_a_prefill_chunk_equals_a_plain_forward(engine, reference):
    ids = prompt(4, 1100)
    generation = await engine.generate(ids, sampling=params(3), request_id="long")
    assert_matches_reference(reference, ids, generation)


@engine_test()
async def test_a_new_turn_prefills_only_new_tokens_and_equals_one_from_scratch(engine, reference):
    ids = prompt(5, 40)
    for turn in range(4):
        start = (
            max(0, len(ids) - 6) if turn else 0
        )  # six new tokens a turn, and the row of the last sampled one
        kept = await engine.generate(
            ids, sampling=params(15), request_id=f"t{turn}", session_id="trial", routed_experts_start=start
        )
        fresh = await engine.generate(ids, sampling=params(15), request_id=f"t{turn}")
        assert kept.cached_tokens == (len(ids) - 6 if turn else 0) and fresh.cached_tokens == 0
        np.testing.assert_array_equal(kept.output_ids, fresh.output_ids)
        np.testing.assert_allclose(kept.output_logprobs, fresh.output_logprobs, atol=2e-5)
        np.testing.assert_array_equal(kept.routed_experts, fresh.routed_experts[start:])
        assert_matches_reference(reference, ids, kept)
        ids = np.concatenate([ids, kept.output_ids, prompt(50 + turn, 5)])


@engine_test()
async def test_a_prompt_that_does_not_extend_the_session_is_computed_from_scratch(engine, reference):
    ids = prompt(6, 30)
    first = await engine.generate(ids, sampling=params(10), request_id="a", session_id="s")
    full = np.concatenate([ids, first.output_ids])
    changed = full.copy()
    changed[3] = (changed[3] + 1) % VOCAB
    for name, other in (
        ("changed", changed),
        ("shorter", full[:20]),
        ("same length as the state", full[:-1]),
    ):
        await engine.generate(ids, sampling=params(10), request_id="a", session_id="s")
        generation = await engine.generate(other, sampling=params(5), request_id=name, session_id="s")
        assert generation.cached_tokens == 0, name
        assert_matches_reference(reference, other, generation)


@engine_test(max_running=5)
async def test_sixteen_ragged_requests_in_five_lanes_each_equal_a_plain_forward(engine, reference):
    prompts = [prompt(100 + i, 3 + 9 * i) for i in range(16)]
    together = await asyncio.gather(
        *(engine.generate(p, sampling=params(4 + i), request_id=f"r{i}") for i, p in enumerate(prompts))
    )
    for i, (ids, generation) in enumerate(zip(prompts, together, strict=True)):
        assert len(generation.output_ids) == 4 + i
        assert_matches_reference(reference, ids, generation)
        alone = await engine.generate(ids, sampling=params(4 + i), request_id=f"r{i}")
        np.testing.assert_array_equal(alone.output_ids, generation.output_ids)
        np.testing.assert_allclose(alone.output_logprobs, generation.output_logprobs, atol=2e-5)


@engine_test()
async def test_a_shared_beginning_is_forwarded_once_a_version_and_changes_nothing(engine, reference):
    shared = prompt(20, 150)  # learnt down to a multiple of 64
    prompts = [np.concatenate([shared, prompt(21 + i, 10 + 7 * i)]) for i in range(6)]
    for version in range(2):
        if version:
            await engine.update_weights(version, other_weights(reference, scale=1.0))
        batch = await asyncio.gather(
            *(engine.generate(p, sampling=params(5), request_id=f"r{i}") for i, p in enumerate(prompts))
        )
        for ids, generation in zip(prompts, batch, strict=True):
            assert_matches_reference(reference, ids, generation)
        # the first two teach it, the third leaves the state; later versions know it from the start
        assert [g.cached_tokens for g in batch] == ([0, 0] if version == 0 else [0, 128]) + [128] * 4
    await engine.update_weights(2, other_weights(reference))
    new = await engine.generate(prompts[0], sampling=params(5), request_id="new")
    assert new.cached_tokens == 0
    stale, _ = reference(np.concatenate([prompts[0], new.output_ids]))
    assert (
        np.abs(
            new.output_logprobs - stale[np.arange(len(prompts[0]) - 1, len(stale) - 1), new.output_ids]
        ).max()
        > 0.01
    )


@engine_test(max_running=8)
async def test_lanes_of_unequal_new_lengths_share_a_forward_exactly(engine, reference):
    first = [prompt(30 + i, 20 + 11 * i) for i in range(8)]
    turns = await asyncio.gather(
        *(
            engine.generate(p, sampling=params(6), request_id=f"a{i}", session_id=f"s{i}")
            for i, p in enumerate(first)
        )
    )
    more = [
        np.concatenate([p, g.output_ids, prompt(40 + i, i)])
        for i, (p, g) in enumerate(zip(first, turns, strict=True))
    ]
    windows, forward = [], engine._model.forward
    engine._model.forward = lambda window: (windows.append(window), forward(window))[1]
    await engine.pause_generation("in_place")  # so that all eight wait together
    tasks = [
        asyncio.create_task(engine.generate(p, sampling=params(6), request_id=f"b{i}", session_id=f"s{i}"))
        for i, p in enumerate(more)
    ]
    while (await engine.health())["num_waiting"] < 8:
        await asyncio.sleep(0.01)
    await engine.continue_generation()
    for ids, generation, i in zip(more, await asyncio.gather(*tasks), range(8), strict=True):
        assert generation.cached_tokens == len(ids) - 1 - i
        assert_matches_reference(reference, ids, generation)
    assert windows[0].lengths.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


@engine_test()
async def test_the_stop_token_ends_the_output_and_is_part_of_it(engine, reference):
    ids = prompt(7, 10)
    free = await engine.generate(ids, sampling=params(30), request_id="a")
    stop = int(free.output_ids[12])
    first = int(np.flatnonzero(free.output_ids == stop)[0])
    stopped = await engine.generate(ids, sampling=params(30, stop_token_ids=(stop,)), request_id="a")
    np.testing.assert_array_equal(stopped.output_ids, free.output_ids[: first + 1])
    assert stopped.finish_reason == "stop" and len(stopped.routed_experts) == 10 + first


@engine_test()
async def test_draws_depend_on_the_seed_or_else_the_request_id_and_greedy_takes_the_largest(
    engine, reference
):
    ids = prompt(8, 10)

    async def output(request_id, **more):
        generation = await engine.generate(ids, sampling=params(6, **more), request_id=request_id)
        return generation.output_ids.tolist()

    assert await output("a") == await output("a")
    assert await output("a") != await output("b")
    assert await output("a", sampling_seed=1) != await output("a", sampling_seed=2)
    assert await output("a", sampling_seed=1) == await output("b", sampling_seed=1)
    greedy = await engine.generate(ids, sampling=params(6, temperature=0.0), request_id="g")
    logprobs, _ = reference(np.concatenate([ids, greedy.output_ids]))
    np.testing.assert_array_equal(greedy.output_ids, logprobs[9:-1].argmax(-1))
    np.testing.assert_allclose(greedy.output_logprobs, logprobs[9:-1].max(-1), atol=2e-5)
    assert await output("c", top_k=1) == await output("d", top_p=1e-6) == greedy.output_ids.tolist()


@engine_test()
async def test_an_aborted_request_answers_with_matching_partial_rows(engine, reference):
    ids = prompt(9, 20)
    task = asyncio.create_task(engine.generate(ids, sampling=params(1900), request_id="long", session_id="s"))
    while (await engine.health())["output_tokens"] < 5:
        await asyncio.sleep(0.01)
    assert await engine.abort_request("long")
    partial = await task
    assert partial.finish_reason == "abort" and 5 <= len(partial.output_ids) < 1900
    assert_matches_reference(reference, ids, partial)
    assert not await engine.abort_request("long")
    follow_up = np.concatenate([ids, partial.output_ids, prompt(10, 4)])
    resumed = await engine.generate(follow_up, sampling=params(5), request_id="next", session_id="s")
    assert resumed.cached_tokens == len(follow_up) - 5
    assert_matches_reference(reference, follow_up, resumed)


@engine_test(max_running=1)
async def test_pause_abort_ends_running_and_waiting_requests_and_holds_new_ones(engine, reference):
    running = asyncio.create_task(engine.generate(prompt(1, 9), sampling=params(1500), request_id="running"))
    waiting = asyncio.create_task(engine.generate(prompt(2, 9), sampling=params(1500), request_id="waiting"))
    while (await engine.health())["output_tokens"] < 3:
        await asyncio.sleep(0.01)
    await engine.pause_generation("abort")
    first, second = await running, await waiting
    assert first.finish_reason == second.finish_reason == "abort"
    assert len(first.output_ids) >= 3 and len(second.output_ids) == 0 and second.routed_experts is None
    held = asyncio.create_task(engine.generate(prompt(3, 9), sampling=params(4), request_id="held"))
    await asyncio.sleep(0.2)
    assert not held.done() and (await engine.health())["num_waiting"] == 1
    await engine.continue_generation()
    assert_matches_reference(reference, prompt(3, 9), await held)


@engine_test()
async def test_pause_in_place_freezes_requests_and_they_go_on_unchanged(engine, reference):
    ids = prompt(11, 9)
    task = asyncio.create_task(engine.generate(ids, sampling=params(200), request_id="r"))
    while (await engine.health())["output_tokens"] < 3:
        await asyncio.sleep(0.01)
    await engine.pause_generation("in_place")
    before = (await engine.health())["output_tokens"]
    await asyncio.sleep(0.2)
    assert (await engine.health())["output_tokens"] == before < 200
    await engine.continue_generation()
    assert_matches_reference(reference, ids, await task)


def other_weights(reference, scale=1.5):
    """Scaled weights, read-only as they come out of shared memory."""
    weights = {name: (scale * t).numpy() for name, t in reference.model.state_dict().items()}
    for array in weights.values():
        array.flags.writeable = False
    return weights


@engine_test()
async def test_state_of_old_weights_is_never_reused_after_an_update(engine, reference):
    ids = prompt(12, 30)
    old = await engine.generate(ids, sampling=params(10), request_id="a", session_id="s")
    follow_up = np.concatenate([ids, old.output_ids, prompt(13, 5)])
    checksum = await engine.update_weights(1, other_weights(reference))
    new = await engine.generate(follow_up, sampling=params(10), request_id="b", session_id="s")
    assert (old.weight_version, new.weight_version) == (0, 1)
    assert new.cached_tokens == 0 and set(new.output_versions) == {1}
    full = np.concatenate([follow_up, new.output_ids])
    stale, _ = reference(full)
    assert (
        np.abs(
            new.output_logprobs - stale[np.arange(len(follow_up) - 1, len(full) - 1), new.output_ids]
        ).max()
        > 0.01
    )
    assert await engine.update_weights(2, other_weights(reference)) == checksum
    back = await engine.update_weights(3, other_weights(reference, scale=1.0))
    assert back != checksum
    assert_matches_reference(
        reference,
        follow_up,
        await engine.generate(follow_up, sampling=params(10), request_id="c", session_id="s"),
    )


@engine_test()
async def test_a_request_frozen_over_an_update_carries_both_versions_and_leaves_no_session(engine, reference):
    task = asyncio.create_task(
        engine.generate(prompt(14, 9), sampling=params(300), request_id="r", session_id="s")
    )
    while (await engine.health())["output_tokens"] < 3:
        await asyncio.sleep(0.01)
    with pytest.raises(EngineRefused, match="pause_generation first"):
        await engine.update_weights(1, other_weights(reference))
    await engine.pause_generation("in_place")
    await engine.update_weights(1, other_weights(reference))
    await engine.continue_generation()
    generation = await task
    versions = generation.output_versions
    assert versions[0] == 0 and versions[-1] == 1 and (np.diff(versions) >= 0).all()
    assert (await engine.health())["num_sessions"] == 0


@engine_test()
async def test_an_update_that_does_not_fit_changes_nothing(engine, reference):
    ids = prompt(15, 20)
    good = other_weights(reference)
    name = "model.norm.weight"
    for broken, match in (
        ({k: v for k, v in good.items() if k != name}, "missing"),
        ({**good, "extra.weight": good[name]}, "unknown"),
        ({**good, name: good[name][:-1]}, "shape"),
        ({**good, name: np.full_like(good[name], np.nan)}, "NaN"),
    ):
        with pytest.raises(EngineRefused, match=match):
            await engine.update_weights(1, broken)
    generation = await engine.generate(ids, sampling=params(5), request_id="a")
    assert generation.weight_version == 0
    assert_matches_reference(reference, ids, generation)


@engine_test(max_cached_tokens=100)
async def test_idle_sessions_are_evicted_oldest_first_and_can_be_released_and_flushed(engine, reference):
    for i in range(3):
        await engine.generate(prompt(i, 40), sampling=params(5), request_id=f"r{i}", session_id=f"s{i}")
    health = await engine.health()
    assert health["num_sessions"] == 2 and health["cached_tokens"] == 2 * 44
    oldest = await engine.generate(prompt(0, 50), sampling=params(1), request_id="again", session_id="s0")
    assert oldest.cached_tokens == 0
    await engine.release_session("s2")
    assert (await engine.health())["num_sessions"] == 1
    await engine.flush_cache()
    assert (await engine.health())["cached_tokens"] == 0


@engine_test()
async def test_a_request_that_cannot_be_served_is_refused_with_the_field_named(engine, reference):
    ids = prompt(0, 5)
    for bad, match in (
        ({"input_ids": ids[:0]}, "input_ids"),
        ({"input_ids": np.array([VOCAB])}, "input_ids"),
        ({"sampling": params(0)}, "max_new_tokens"),
        ({"sampling": params(2048)}, "max_context"),
        ({"sampling": params(5, top_p=0.0)}, "top_p"),
        ({"routed_experts_start": 6}, "routed_experts_start"),
    ):
        request = {"input_ids": ids, "sampling": params(5), "request_id": "r", **bad}
        with pytest.raises(EngineRefused, match=match):
            await engine.generate(request.pop("input_ids"), **request)
    with pytest.raises(EngineRefused, match="pause mode"):
        await engine.pause_generation("retract")


@engine_test()
async def test_a_cancelled_caller_frees_its_lane(engine, reference):
    task = asyncio.create_task(engine.generate(prompt(1, 9), sampling=params(1900), request_id="cut"))
    while (await engine.health())["num_running"] == 0:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await engine.health())["num_running"] == 0


@engine_test()
async def test_a_crashed_loop_fails_its_requests_and_every_later_call(engine, reference):
    task = asyncio.create_task(engine.generate(prompt(1, 9), sampling=params(1900), request_id="r"))
    while (await engine.health())["num_running"] == 0:
        await asyncio.sleep(0.01)
    engine._model.forward = None
    with pytest.raises(EngineDead, match="crashed"):
        await task
    for call in (
        engine.health(),
        engine.flush_cache(),
        engine.generate(prompt(1, 3), sampling=params(1), request_id="x"),
    ):
        with pytest.raises(EngineDead, match="crashed"):
            await call


def test_closing_fails_live_requests_and_leaves_no_thread(checkpoint):
    async def body():
        engine = EmbeddedEngine(checkpoint, dtype="float32", max_context=2048, name="closing")
        task = asyncio.create_task(engine.generate(prompt(1, 9), sampling=params(1900), request_id="r"))
        await asyncio.sleep(0.1)
        await engine.close()
        with pytest.raises(EngineDead, match="closed"):
            await task
        await engine.close()

    asyncio.run(body())
    assert not [t for t in threading.enumerate() if t.name.startswith("closing")]


@engine_test(dtype="bfloat16")
async def test_bfloat16_stays_near_float32_and_is_not_equal_to_it(engine, reference):
    ids = prompt(16, 60)
    generation = await engine.generate(ids, sampling=params(100), request_id="r")
    logprobs, _ = reference(np.concatenate([ids, generation.output_ids]))
    gap = np.abs(generation.output_logprobs - logprobs[np.arange(59, 159), generation.output_ids])
    assert 0 < gap.mean() < 0.2


@engine_test()
async def test_the_faulty_engines_fail_as_they_say(engine, reference):
    silent = SilentEngine(engine, num_answers=1)
    assert isinstance(silent, Engine)
    await silent.health()
    await silent.generate(prompt(1, 3), sampling=params(2), request_id="a")
    for call in (silent.generate(prompt(1, 3), sampling=params(2), request_id="b"), silent.health()):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, timeout=0.3)
    dying = DyingEngine(engine, num_answers=0)
    with pytest.raises(EngineDead):
        await dying.generate(prompt(1, 3), sampling=params(2), request_id="c")
    with pytest.raises(EngineDead):
        await dying.health()
