"""Shapes and layouts that cannot work are refused with the field that breaks them."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from t1core.model.checkpoint import hf_sizes
from t1core.model.layout import Layout
from t1core.model.shape import ModelShape


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"num_query_groups": 3}, "num_attention_heads=4 is not a multiple of num_query_groups=3"),
        ({"linear_num_key_heads": 3}, "linear_num_value_heads=4 is not a multiple of linear_num_key_heads=3"),
        ({"num_experts_per_tok": 9}, r"num_experts_per_tok=9 is not in 1..num_experts=8"),
        ({"partial_rotary_factor": 0.1}, "gives 3 rotated channels"),
        ({"hidden": 64}, "ModelShape has no field 'hidden'"),
    ],
    ids=str,
)
def test_an_impossible_shape_names_its_field(overrides: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelShape.nano(vocab_size=512, **overrides)


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"tp": 0}, "tp=0 must be at least 1"),
        ({"tp": 2, "sequence_parallel": False}, "tp=2 with sequence_parallel=False"),
        ({"sequence_parallel": True}, "no effect with tp=1"),
        ({"gdn_cp": "ulysses"}, "gdn_cp='ulysses' is not one of state, state_scan, heads, gather"),
    ],
    ids=str,
)
def test_an_impossible_layout_says_why(degrees: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(**degrees)


@pytest.mark.parametrize(
    ("degrees", "world_size", "message"),
    [
        ({"tp": 2}, 3, r"3 ranks are no multiple of tp\*pp\*cp=2"),
        ({"pp": 2, "ep": 4}, 4, "ep=4 does not divide the 2 ranks of a pipeline stage"),
        ({"pp": 3}, 3, "num_layers=4 is not a multiple of pp=3"),
        ({"cp": 4, "gdn_cp": "heads"}, 4, r"linear_num_key_heads=2 is not a multiple of tp\*cp=4"),
        ({"tp": 4}, 4, "num_query_groups=2 is not a multiple of tp=4"),
        ({"ep": 16}, 16, "num_experts=8 is not a multiple of ep=16"),
    ],
    ids=str,
)
def test_a_layout_that_the_shape_cannot_carry_is_refused(
    degrees: dict[str, int], world_size: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(**degrees).check(ModelShape.nano(vocab_size=512), world_size=world_size)


def test_context_parallel_ranks_may_outnumber_key_heads_when_state_is_handed_on() -> None:
    Layout(cp=16).check(ModelShape.nano(vocab_size=512), world_size=16)


def test_rows_are_padded_for_the_finest_cut_of_the_layout() -> None:
    multiples = {
        layout: layout.row_multiple for layout in (Layout(), Layout(tp=2), Layout(cp=2), Layout(tp=2, cp=2))
    }
    assert list(multiples.values()) == [1, 2, 4, 8]


def test_a_config_with_a_vision_tower_is_read_for_its_text(tmp_path: Path) -> None:
    shape = ModelShape.nano(vocab_size=512, eos_token_id=7)
    shape.write_config(tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_5_moe", "text_config": text}))
    assert ModelShape.from_hf(tmp_path) == shape


def test_what_another_architecture_would_misread_is_refused(tmp_path: Path) -> None:
    shape = ModelShape.nano(vocab_size=512)
    shape.write_config(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for change, message in (
        ({"model_type": "qwen3_next"}, "model_type is 'qwen3_next', expected 'qwen3_5_moe_text'"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is true"),
        (
            {"full_attention_interval": None, "layer_types": ["full_attention", "linear_attention"] * 2},
            "layer_types is no regular alternation",
        ),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=message):
            ModelShape.from_hf(tmp_path)


def test_the_real_models_dimensions_fit_the_layouts_it_is_trained_with() -> None:
    """Qwen3.5-122B-A10B over TP 2, PP 4, CP 4, EP 16 on 64 ranks."""
    nano = ModelShape.nano(vocab_size=248_320)
    real = dataclasses.replace(
        nano,
        hidden_size=3072,
        num_layers=48,
        num_attention_heads=32,
        num_query_groups=2,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=64,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        num_experts=256,
        num_experts_per_tok=8,
        moe_intermediate_size=1024,
        shared_expert_intermediate_size=1024,
    )
    Layout(tp=2, pp=4, cp=4, ep=16).check(real, world_size=64)
    total = sum(math.prod(size) for size in hf_sizes(real).values())
    assert round(total / 1e9, 2) == 122.11
