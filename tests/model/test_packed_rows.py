"""Rows packed into one sequence do not see each other."""

import pytest
import torch
from packed_text import PackedText, random_text

from t1core.model import convert, forward
from t1core.model.build import build_model
from t1core.model.packed_rows import zigzag
from t1core.model.scoring import score
from t1core.model.shape import ModelShape

LENGTHS = [37, 150, 1, 64, 3, 32, 33]


@pytest.fixture(scope="module")
def model(shape: ModelShape, state: dict[str, torch.Tensor]) -> torch.nn.Module:
    model = build_model(shape, role="actor")
    convert.load_hf(model, state, shape)
    return model


def logits_of(model: torch.nn.Module, text: PackedText) -> torch.Tensor:
    hidden = forward.outputs(model, text.tokens, text.positions, forward.packed(text.cu_seqlens))
    return hidden @ model.output_layer.weight.T


@torch.no_grad()
def test_packed_rows_give_what_each_row_gives_alone(model: torch.nn.Module) -> None:
    text = random_text(LENGTHS)
    apart = torch.cat([logits_of(model, PackedText((row,))) for row in text.rows])
    together = logits_of(model, text)
    assert (together - apart).abs().max() < 2e-5 * apart.abs().max()


@torch.no_grad()
def test_changing_one_row_changes_no_other(model: torch.nn.Module) -> None:
    text = random_text(LENGTHS)
    changed = list(text.rows)
    changed[1] = changed[1].flip(0)
    before, after = (logits_of(model, t).split(LENGTHS) for t in (text, PackedText(tuple(changed))))
    assert (before[1] - after[1]).abs().max() > 0.1
    for i in (0, 2, 3, 4, 5, 6):
        assert (before[i] - after[i]).abs().max() < 1e-4, f"row {i} moved"


def test_no_gradient_crosses_a_row(model: torch.nn.Module) -> None:
    text = random_text(LENGTHS, vocab_size=511)
    embedding = model.embedding.word_embeddings.weight
    lonely = 511  # no other row has this token
    text.rows[3][0] = lonely
    rest = torch.cat([torch.full((n,), i != 3, dtype=torch.float32) for i, n in enumerate(LENGTHS)])
    logprobs, _ = forward.token_logprobs(
        model, text.tokens, text.positions, text.targets, forward.packed(text.cu_seqlens)
    )
    (grad,) = torch.autograd.grad((logprobs * rest).sum(), embedding)
    assert torch.count_nonzero(grad[lonely]) == 0


@torch.no_grad()
def test_logprobs_and_entropy_are_those_of_the_tempered_softmax(model: torch.nn.Module) -> None:
    text = random_text([20, 30])
    for temperature in (1.0, 0.7):
        expected = torch.log_softmax(logits_of(model, text).double() / temperature, -1)
        logprobs, entropy = forward.token_logprobs(
            model,
            text.tokens,
            text.positions,
            text.targets,
            forward.packed(text.cu_seqlens),
            temperature=temperature,
        )
        torch.testing.assert_close(
            logprobs, expected.gather(1, text.targets[:, None])[:, 0].float(), atol=2e-6, rtol=1e-5
        )
        torch.testing.assert_close(
            entropy, torch.special.entr(expected.exp()).sum(-1).float(), atol=1e-5, rtol=1e-5
        )


def test_the_entropy_is_measured_without_a_gradient(model: torch.nn.Module) -> None:
    hidden = torch.randn(3, 128, requires_grad=True)
    logprobs, entropy = score(hidden, torch.tensor([1, 2, 3]), model=model)
    assert logprobs.requires_grad and not entropy.requires_grad


def test_zigzag_gives_each_rank_an_early_and_a_late_piece_of_every_row() -> None:
    held = zigzag(torch.tensor([0, 4, 12]), 2)
    assert held.tolist() == [[0, 3, 4, 5, 10, 11], [1, 2, 6, 7, 8, 9]]
    assert zigzag(torch.tensor([0, 3]), 1).tolist() == [[0, 1, 2]]
    with pytest.raises(ValueError, match="a row of 6 tokens is no multiple of 2 \\* cp = 4"):
        zigzag(torch.tensor([0, 4, 10]), 2)


def test_rows_must_not_be_empty() -> None:
    for bad in ([0], [0, 4, 4], [1, 4]):
        with pytest.raises(ValueError, match="cu_seqlens must start at 0 and increase"):
            forward.packed(torch.tensor(bad))
