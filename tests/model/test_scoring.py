"""Scoring in blocks: the numbers of the whole, in memory that a row's length does not change."""

import pytest
import torch

from t1core.model import scoring, scoring_block
from t1core.model.build import build_model
from t1core.model.scoring import score
from t1core.model.scoring_block import tokens_at_once
from t1core.model.shape import ModelShape
from t1core.train.peak_memory import counted

VOCAB, WIDTH = 512, 128


@pytest.fixture(scope="module")
def model(shape: ModelShape) -> torch.nn.Module:
    model = build_model(shape, role="actor")
    with torch.no_grad():
        model.output_layer.weight.normal_(generator=torch.Generator().manual_seed(1))
    return model


def given(tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(tokens)
    return (
        torch.randn(tokens, WIDTH, generator=drawn),
        torch.randint(0, VOCAB, (tokens,), generator=drawn),
        torch.randn(tokens, generator=drawn),
    )


def gradients(model: torch.nn.Module, tokens: int, *, temperature: float = 1.0) -> dict[str, torch.Tensor]:
    hidden, targets, upstream = given(tokens)
    hidden.requires_grad_()
    weight = model.output_layer.weight
    logprobs, entropy = score(hidden, targets, model=model, temperature=temperature)
    assert not entropy.requires_grad
    of_hidden, of_weight = torch.autograd.grad(logprobs, [hidden, weight], upstream)
    return dict(logprobs=logprobs.detach(), entropy=entropy, of_hidden=of_hidden, of_weight=of_weight)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("tokens", [96, 100])
def test_blocks_give_what_the_whole_gives(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch, tokens: int, temperature: float
) -> None:
    """All but the gradient of the weights, which is summed in another order, to the last bits of a product's rows."""
    whole = gradients(model, tokens, temperature=temperature)
    monkeypatch.setattr(scoring_block, "LOGITS", 32 * VOCAB)
    assert tokens_at_once(VOCAB) == 32
    blocks = gradients(model, tokens, temperature=temperature)
    apart = {
        name: float((blocks[name] - whole[name]).abs().max() / whole[name].abs().max()) for name in whole
    }
    print(apart)
    assert max(apart.values()) < 2e-6


def test_one_block_is_run_once(model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    plain = scoring._score_block
    monkeypatch.setattr(scoring, "_score_block", lambda *given: calls.append(len(given[1])) or plain(*given))
    gradients(model, 96)
    assert calls == [96]
    calls.clear()
    monkeypatch.setattr(scoring_block, "LOGITS", 40 * VOCAB)
    gradients(model, 96)
    assert calls == [40, 40, 16, 40, 40, 16]


def test_frozen_vocabulary_weights_get_no_gradient(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, targets, upstream = given(96)
    hidden.requires_grad_()
    weight = model.output_layer.weight
    monkeypatch.setattr(scoring_block, "LOGITS", 40 * VOCAB)
    weight.requires_grad_(False)
    try:
        score(hidden, targets, model=model)[0].backward(upstream)
        assert weight.grad is None
        frozen = hidden.grad
    finally:
        weight.requires_grad_(True)
    assert torch.equal(frozen, gradients(model, 96)["of_hidden"])


def test_the_gradient_of_bf16_weights_is_summed_in_fp32(
    shape: ModelShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,096 blocks of one token: a sum kept in bf16 stalls when its terms fall below its last place."""
    monkeypatch.setattr(scoring_block, "LOGITS", VOCAB)
    halved = build_model(shape, role="actor", dtype=torch.bfloat16)
    torch.nn.init.zeros_(halved.output_layer.weight)
    hidden = torch.ones(4096, WIDTH, dtype=torch.bfloat16)
    logprobs, _ = score(hidden, torch.zeros(4096, dtype=torch.int64), model=halved)
    logprobs.sum().backward()
    # each token: (1 - 1/512) for the target's word, -1/512 for the others
    assert halved.output_layer.weight.grad[0, 0].item() == pytest.approx(4096 * 511 / 512, rel=4e-3)
    assert halved.output_layer.weight.grad[1, 0].item() == pytest.approx(-4096 / 512, rel=4e-3)


def test_memory_does_not_grow_with_the_row(model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def peak(tokens: int) -> int:
        """Beyond what one number a token and the hidden states take."""
        with counted(on_gpu=False) as (reset, since):
            hidden, targets, upstream = given(tokens)
            hidden.requires_grad_()
            reset()
            logprobs, _ = score(hidden, targets, model=model)
            logprobs.backward(upstream)
            model.output_layer.weight.grad = None
            return since() - 2 * hidden.nbytes

    whole = [peak(tokens) for tokens in (256, 1024)]
    monkeypatch.setattr(scoring_block, "LOGITS", 64 * VOCAB)
    blocks = [peak(tokens) for tokens in (256, 1024)]
    print(whole, blocks)
    assert whole[1] - whole[0] > 3 * 768 * VOCAB * 4
    assert blocks[1] - blocks[0] < 768 * 64
