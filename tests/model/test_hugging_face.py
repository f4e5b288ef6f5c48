"""The same weights in transformers' model and in ours."""

import json
from pathlib import Path

import pytest
import torch
from packed_text import random_text
from transformers import Qwen3_5MoeForCausalLM

from t1core.model import convert, delta_rule, forward
from t1core.model.build import build_model
from t1core.model.checkpoint import HfDirectory, hf_sizes, initial_state
from t1core.model.shape import ModelShape

TEXT = random_text([37, 150, 8, 64])


@pytest.fixture(scope="module")
def theirs(hf_directory: Path) -> Qwen3_5MoeForCausalLM:
    return Qwen3_5MoeForCausalLM.from_pretrained(hf_directory, dtype=torch.float32)


@pytest.fixture(scope="module")
def ours(shape: ModelShape, hf_directory: Path) -> torch.nn.Module:
    model = build_model(shape, role="actor")
    convert.load_hf(model, hf_directory, shape)
    return model


def our_logits(model: torch.nn.Module) -> torch.Tensor:
    hidden = forward.outputs(model, TEXT.tokens, TEXT.positions, forward.packed(TEXT.cu_seqlens))
    return hidden @ model.output_layer.weight.T


@torch.no_grad()
def test_logits_agree_with_transformers_to_a_ten_thousandth_of_their_scale(
    ours: torch.nn.Module, theirs: Qwen3_5MoeForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = torch.cat([theirs(input_ids=row[None]).logits[0] for row in TEXT.rows])
    found = our_logits(ours)
    monkeypatch.setitem(delta_rule.chunk_gated_delta_rule.__kwdefaults__, "chunk_size", 16)
    floor = (our_logits(ours) - found).abs().max() / expected.abs().max()
    gap = (found - expected).abs().max() / expected.abs().max()
    print(f"logits of scale {expected.abs().max():.1f}: gap {gap:.1e}, reordering alone {floor:.1e}")
    assert 0 < floor < 1e-4
    assert gap < 1e-4


def test_gradients_agree_with_transformers(ours: torch.nn.Module, theirs: Qwen3_5MoeForCausalLM) -> None:
    ours.zero_grad()
    logprobs, _ = forward.token_logprobs(
        ours, TEXT.tokens, TEXT.positions, TEXT.targets, forward.packed(TEXT.cu_seqlens)
    )
    (-logprobs.mean()).backward()
    theirs.zero_grad()
    for row in TEXT.rows:
        logits = theirs(input_ids=row[None]).logits[0]
        (
            torch.nn.functional.cross_entropy(logits, row.roll(-1), reduction="sum") / len(TEXT.tokens)
        ).backward()
    config_shape = ModelShape.from_hf(theirs.config.name_or_path)
    grads = {name: p.grad for name, p in ours.named_parameters()}
    found = convert.megatron_to_hf(grads, config_shape)
    for name, param in theirs.named_parameters():
        error = (found[name] - param.grad).abs().max() / param.grad.abs().max()
        assert error < 2e-3, f"{name}: {error:.1e}"


def test_loading_and_exporting_returns_every_tensor_bit_for_bit(
    ours: torch.nn.Module, shape: ModelShape, state: dict[str, torch.Tensor]
) -> None:
    exported = convert.export_hf(ours, shape)
    assert exported.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(exported[name], tensor), name


def test_megatron_and_back_returns_every_tensor_bit_for_bit(
    shape: ModelShape, state: dict[str, torch.Tensor]
) -> None:
    megatron = convert.hf_to_megatron(state, shape)
    back = convert.megatron_to_hf(megatron, shape)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) for name in state)
    again = convert.hf_to_megatron(back, shape)
    assert all(torch.equal(again[name], megatron[name]) for name in megatron)


def test_our_list_of_tensors_is_transformers_own(theirs: Qwen3_5MoeForCausalLM, shape: ModelShape) -> None:
    assert hf_sizes(shape) == {name: tuple(p.shape) for name, p in theirs.state_dict().items()}


def test_a_config_file_read_back_is_the_same_shape_and_says_what_sglang_asks(
    shape: ModelShape, hf_directory: Path
) -> None:
    assert ModelShape.from_hf(hf_directory) == shape
    config = json.loads((hf_directory / "config.json").read_text())
    asked = {key: config[key] for key in ("num_experts", "full_attention_interval", "rope_theta")}
    assert asked == {"num_experts": 8, "full_attention_interval": 4, "rope_theta": 10000.0}


def test_a_shape_saved_by_transformers_itself_is_understood(
    shape: ModelShape, theirs: Qwen3_5MoeForCausalLM, tmp_path: Path
) -> None:
    theirs.config.save_pretrained(tmp_path)
    assert ModelShape.from_hf(tmp_path) == shape


def test_a_critic_loads_an_actors_backbone_and_starts_at_zero(shape: ModelShape, hf_directory: Path) -> None:
    critic = build_model(shape, role="critic")
    critic.output_layer.weight.data.fill_(3.0)
    convert.load_hf(critic, hf_directory, shape)
    values = forward.token_values(critic, TEXT.tokens, TEXT.positions, forward.packed(TEXT.cu_seqlens))
    assert values.dtype == torch.float32
    assert torch.equal(values, torch.zeros(len(TEXT.tokens)))


def test_a_critics_export_carries_its_head_and_loads_again(
    shape: ModelShape, hf_directory: Path, state: dict[str, torch.Tensor]
) -> None:
    critic = build_model(shape, role="critic")
    convert.load_hf(critic, hf_directory, shape)
    critic.output_layer.weight.data.normal_()
    critic.output_layer.bias.data.fill_(0.25)
    exported = convert.export_hf(critic, shape)
    assert exported.keys() == (state.keys() - {"lm_head.weight"}) | {"value_head.weight", "value_head.bias"}
    other = build_model(shape, role="critic")
    convert.load_hf(other, exported, shape)
    for (name, a), (_, b) in zip(critic.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_a_checkpoint_of_another_shape_is_refused_by_name(
    ours: torch.nn.Module, shape: ModelShape, state: dict[str, torch.Tensor]
) -> None:
    with pytest.raises(ValueError, match=r"lm_head\.weight"):
        convert.load_hf(ours, {k: v for k, v in state.items() if k != "lm_head.weight"}, shape)
    with pytest.raises(ValueError, match=r"model\.norm\.weight: the source gives \(64,\)"):
        convert.load_hf(ours, {**state, "model.norm.weight": torch.zeros(64)}, shape)
    with pytest.raises(ValueError, match="does not exist"):
        ModelShape.from_hf("/nowhere")
    with pytest.raises(ValueError, match=r"no \.safetensors"):
        HfDirectory("/nowhere")


def test_a_seed_fixes_the_initial_weights(shape: ModelShape) -> None:
    one, same, other = (initial_state(shape, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])
