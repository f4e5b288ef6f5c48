"""What the GPU benchmarks make of their measurements, and the parts of them that need no GPU."""

import asyncio

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from benchmarks.gpu_limits import comparisons, own_routes
from benchmarks.gpu_model import alone, make_batch, make_shape, write_random
from benchmarks.gpu_profile import busy_and_gaps, class_of, explain
from benchmarks.gpu_rollout import play, weights_of
from t1core.records import ModelCall
from t1core.train.settings import TrainSettings
from t1core.train.trainer import Trainer


@pytest.mark.parametrize(
    ("kernel", "what"),
    [
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN", "matrix products"),
        ("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm", "matrix products"),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "attention"),
        ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "delta rule"),
        ("causal_conv1d_bwd_kernel", "convolution"),
        ("_norm_gradient_kernel", "norms"),
        ("Memcpy DtoH (Device -> Pinned)", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add", "elementwise"),
        ("something_new", "other"),
    ],
)  # fmt: skip
def test_a_kernel_is_of_the_class_its_name_says(kernel, what):
    assert class_of(kernel) == what


def test_busy_time_counts_overlapping_kernels_once():
    # 0 to 2 and 1 to 3 overlap, 5 to 6 stands alone, 5.2 to 5.4 lies within it.
    assert busy_and_gaps([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (5.2, 5.4)]) == (4.0, 2.0)


def test_the_lost_shares_and_the_share_of_the_peak_are_the_whole_step():
    kernels = [
        ("gemm", 0.0, 4.0),
        ("flash_fwd", 4.0, 5.0),
        ("vectorized_elementwise", 5.0, 6.0),
        ("gemm", 7.0, 8.0),
    ]
    found = explain(kernels, wall_s=10.0, flops=300.0, peak_flops_per_s=100.0)
    # 3 s at the peak; products and attention take 6, elementwise 1, and nothing runs for 3.
    assert found["share_of_peak"] == pytest.approx(0.3) and found["busy_s"] == 7.0
    lost = found["lost_share_of_step"]
    assert lost["matrix products and attention beyond their time at the peak"] == pytest.approx(0.3)
    assert lost["elementwise"] == pytest.approx(0.1) and lost["device idle"] == pytest.approx(0.3)
    assert sum(lost.values()) + found["share_of_peak"] == pytest.approx(1.0)


def test_the_batch_is_given_the_experts_that_its_model_chooses(tmp_path):
    shape = make_shape("tiny", vocab_size=64)
    write_random(shape, tmp_path / "model", router_gain=4.0)
    alone()
    trainer = Trainer(
        TrainSettings(
            str(tmp_path / "model"), critic_path=None, shape=shape, advantage="grpo", max_tokens_per_gpu=8
        )
    )
    trainer.setup()
    try:
        batch = make_batch(shape, num_rows=3, length=6, seed=0, version=0)
        assert trainer.score_freely(batch)[1].any(), "drawn routes are not the model's own"
        own = own_routes(trainer, batch)
        logprobs, flips = trainer.score_freely(own)
        assert not flips[own.loss_mask.astype(bool)].any()
        # a last token, which predicts nothing, goes elsewhere, so products have other shapes
        np.testing.assert_allclose(trainer.score(own), logprobs, atol=1e-5)
    finally:
        trainer.close()


def test_ratios_are_of_like_to_like():
    found = {
        "replay": {"replayed": 1.01, "free": 1.0},
        "actor": {"campaign": 2.0, "bare": 1.9},
        "swap": {"moved_bytes": 9e9, "out": 0.3, "back": 0.2, "plain_out": 0.18, "plain_back": 0.18},
    }
    ratios = [round(one.ratio, 3) for one in comparisons(found, num_tokens=100)]
    assert ratios == [1.01, 0.95, 0.6, 0.9]
    assert [one.holds for one in comparisons(found, num_tokens=100)] == [True, False, False, True]


def test_trials_are_played_turn_by_turn_and_what_is_captured_becomes_a_row():
    seen = []

    async def sample(name, ids, known):
        seen.append((name, ids.tolist(), known))
        trial, turn = name.split("/")
        call = ModelCall(
            model_call_id=name, rollout_id=trial, parent_call_id=f"{trial}/0" if turn == "1" else None,
            prompt_token_ids=ids, completion_token_ids=np.array([7, 8], np.int32),
            logprobs=np.zeros(2, np.float32), finish_reason="length", weight_version=0,
            output_versions=np.zeros(2, np.int32), routed_experts=None, routed_experts_start=0,
        )  # fmt: skip
        return [7, 8], call

    assert asyncio.run(play(sample, np.array([[[1, 2], [3, 4]]], np.int32))) == 4
    assert seen == [("0/0", [1, 2], 0), ("0/1", [1, 2, 7, 8, 3, 4], 3)]


def test_weights_are_published_in_fp32_whatever_they_are_stored_in(tmp_path):
    stored = {"a": torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "b": torch.tensor([0.1])}
    save_file(stored, tmp_path / "model.safetensors")
    read = weights_of(tmp_path)
    assert {name: array.dtype.name for name, array in read.items()} == {"a": "float32", "b": "float32"}
    assert read["a"].tolist() == [1.5, -2.0]
