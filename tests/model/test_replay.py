"""Routing replay chooses experts from a record and leaves the weighing to the live router."""

from collections.abc import Callable, Iterator

import pytest
import torch
from megatron.core.transformer.moe.router import TopKRouter
from packed_text import random_text

from t1core.model import convert, forward, replay
from t1core.model.build import build_model
from t1core.model.shape import ModelShape

TEXT = random_text([37, 64, 11])
PACKED = forward.packed(TEXT.cu_seqlens)


@pytest.fixture(scope="module")
def build(shape: ModelShape, state: dict[str, torch.Tensor]) -> Callable[..., torch.nn.Module]:
    def make(**how: object) -> torch.nn.Module:
        model = build_model(shape, **{"role": "actor", "routing_replay": True, **how})
        convert.load_hf(model, state, shape)
        return model

    return make


@pytest.fixture
def actor(build: Callable[..., torch.nn.Module]) -> Iterator[torch.nn.Module]:
    yield build()


def logprobs(model: torch.nn.Module) -> torch.Tensor:
    return forward.token_logprobs(model, TEXT.tokens, TEXT.positions, TEXT.targets, PACKED)[0]


def recorded(model: torch.nn.Module) -> torch.Tensor:
    replay.record(model)
    with torch.no_grad():
        logprobs(model)
    routes = replay.recorded(model)
    replay.disarm(model)
    return routes


def random_routes(*, seed: int) -> torch.Tensor:
    scores = torch.rand(len(TEXT.tokens), 4, 8, generator=torch.Generator().manual_seed(seed))
    return scores.topk(2).indices.sort(-1).values


def test_replaying_the_models_own_routes_changes_no_bit(actor: torch.nn.Module) -> None:
    free = logprobs(actor)
    routes = recorded(actor)
    assert routes.shape == (len(TEXT.tokens), 4, 2)
    assert bool((routes[..., 0] < routes[..., 1]).all())
    replay.arm(actor, routes.to(torch.uint8))
    assert torch.equal(logprobs(actor), free)
    replay.assert_consumed(actor)


def test_foreign_routes_are_obeyed_layer_by_layer(actor: torch.nn.Module) -> None:
    routes = random_routes(seed=1)
    free = logprobs(actor)
    seen: list[torch.Tensor] = []
    layers = [layer.mlp for layer in actor.decoder.layers]
    hooks = [
        layer.experts.register_forward_pre_hook(lambda _, args: seen.append(args[1].clone()))
        for layer in layers
    ]
    replay.arm(actor, routes)
    forced = logprobs(actor)
    for hook in hooks:
        hook.remove()
    assert (forced - free).abs().max() > 0.01
    for layer, counts in enumerate(seen):
        assert counts.tolist() == torch.bincount(routes[:, layer].flatten(), minlength=8).tolist()


def test_gate_weights_are_the_softmax_of_live_scores_over_the_recorded_experts(
    actor: torch.nn.Module,
) -> None:
    routes = random_routes(seed=2)
    given: dict[str, torch.Tensor] = {}
    layer = actor.decoder.layers[0]
    layer.mlp.register_forward_pre_hook(lambda _, args: given.update(x=args[0]))
    layer.mlp.experts.register_forward_pre_hook(lambda _, args: given.update(probs=args[2]))
    replay.arm(actor, routes)
    logprobs(actor)
    scores = given["x"][:, 0].float() @ layer.mlp.router.weight.float().T
    expected = torch.softmax(scores.gather(1, routes[:, 0]), -1)
    by_expert = torch.argsort(routes[:, 0].flatten(), stable=True)
    torch.testing.assert_close(given["probs"], expected.flatten()[by_expert], atol=1e-6, rtol=1e-5)


def test_the_router_learns_under_replay(actor: torch.nn.Module) -> None:
    replay.arm(actor, random_routes(seed=3))
    logprobs(actor).mean().backward()
    for router in (m for m in actor.modules() if isinstance(m, TopKRouter)):
        assert router.weight.grad.abs().max() > 0


def test_selection_stays_with_the_record_when_the_router_moves(actor: torch.nn.Module) -> None:
    routes = recorded(actor)
    with torch.no_grad():
        for router in (m for m in actor.modules() if isinstance(m, TopKRouter)):
            router.weight.add_(torch.randn(router.weight.shape, generator=torch.Generator().manual_seed(0)))
    assert not torch.equal(recorded(actor), routes)
    chosen: list[torch.Tensor] = []
    for layer in actor.decoder.layers:
        layer.mlp.experts.register_forward_pre_hook(lambda _, args: chosen.append(args[1]))
    replay.arm(actor, routes)
    logprobs(actor)
    for i, counts in enumerate(chosen):
        assert torch.equal(counts, torch.bincount(routes[:, i].flatten(), minlength=8))


def test_recomputation_reads_its_own_cursor(build: Callable[..., torch.nn.Module]) -> None:
    plain, recomputing = build(), build(recompute=True)
    first, second = random_routes(seed=4), random_routes(seed=5)
    outs: dict[str, list[torch.Tensor]] = {}
    for name, model in (("plain", plain), ("recomputing", recomputing)):
        losses = []
        for routes in (first, second):  # two forwards are in flight before the first backward
            replay.arm(model, routes)
            losses.append(logprobs(model).mean())
        for loss in losses:
            loss.backward()
        replay.assert_consumed(model)
        outs[name] = [*losses, *(p.grad for p in model.parameters())]
    for a, b in zip(outs["plain"], outs["recomputing"], strict=True):
        assert torch.equal(a, b)


def test_scoring_without_gradients_leaves_nothing_for_backward(build: Callable[..., torch.nn.Module]) -> None:
    model = build(recompute=True)
    replay.arm(model, random_routes(seed=6))
    with torch.no_grad():
        logprobs(model)
    replay.assert_consumed(model)


def test_an_actor_and_a_critic_in_one_process_share_no_cursor(build: Callable[..., torch.nn.Module]) -> None:
    actor, critic = build(), build(role="critic")
    replay.arm(actor, random_routes(seed=7))
    forward.token_values(critic, TEXT.tokens, TEXT.positions, PACKED)
    with pytest.raises(AssertionError, match="layer 0: 1 forward and 0 backward routes were not consumed"):
        replay.assert_consumed(actor)
    replay.assert_consumed(critic)
    logprobs(actor)
    replay.assert_consumed(actor)


def test_a_second_forward_needs_routes_of_its_own(actor: torch.nn.Module) -> None:
    replay.arm(actor, random_routes(seed=8))
    logprobs(actor)
    with pytest.raises(AssertionError, match="a forward pass without routes"):
        logprobs(actor)
    replay.disarm(actor)
    logprobs(actor)


def test_routes_that_do_not_fit_are_refused(actor: torch.nn.Module, shape: ModelShape) -> None:
    with pytest.raises(ValueError, match=r"routes have shape \(112, 3, 2\), expected \[tokens, 4, 2\]"):
        replay.arm(actor, random_routes(seed=9)[:, :3])
    with pytest.raises(ValueError, match=r"outside 0\.\.7"):
        replay.arm(actor, random_routes(seed=9) + 1)
    with pytest.raises(ValueError, match="routing_replay=True"):
        replay.arm(build_model(shape, role="actor"), random_routes(seed=9))
    replay.arm(actor, random_routes(seed=9)[:-1])
    with pytest.raises(AssertionError, match=r"routes \(111, 2\) for 112 tokens"):
        logprobs(actor)
