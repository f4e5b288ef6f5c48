"""The GPU benchmarks' own arithmetic, and the scoring of the gap on a tiny model on the CPU."""

import numpy as np
import pytest
import torch

from benchmarks.gpu_gap import Scored, compare, score
from benchmarks.gpu_model import active_params, forward_flops, make_shape, num_params, write_random
from benchmarks.gpu_step import FORWARDS_A_STEP, make_batch
from t1core.campaign.routing_gap import one_call_row
from t1core.model.checkpoint import initial_state
from t1core.records import Batch, Generation
from t1core.rollout.sglang.server import free_port
from t1core.train import process_group
from t1core.train.settings import TrainSettings
from t1core.train.trainer import Trainer


def test_the_flops_of_a_forward_by_hand():
    shape = make_shape("tiny", vocab_size=64)
    # Embedding 64 x 64. Of 8 experts a token meets 2: 3 matrices of 32 x 64 in each of 4 layers.
    state = initial_state(shape, seed=0)
    matrices = {name: tensor.numel() for name, tensor in state.items() if tensor.dim() > 1}
    embedding = matrices.pop("model.embed_tokens.weight")
    unchosen = 4 * 6 * 3 * 32 * 64
    assert embedding == 64 * 64
    assert active_params(shape) == sum(matrices.values()) - unchosen
    assert num_params(shape) == sum(tensor.numel() for tensor in state.values())
    # One attention layer of 4 heads of 32: scores and values, 2 * 2 * n * n / 2 * 128, and 2 a parameter and token.
    expected = 2 * active_params(shape) * 12 + 2 * 128 * (10 * 10 + 2 * 2)
    assert forward_flops(shape, [10, 2]) == expected


def test_a_step_makes_as_many_passes_as_its_flops_are_counted_for(tmp_path, monkeypatch):
    shape = make_shape("tiny", vocab_size=64)
    write_random(shape, tmp_path / "model")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    for name, value in (("MASTER_PORT", str(free_port())), ("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    process_group.join()
    trainer = Trainer(TrainSettings(str(tmp_path / "model"), critic_path=None, shape=shape, precision="bf16"))
    trainer.setup()
    passes = []
    for learner in trainer.learners.values():
        learner.model.register_forward_hook(lambda *_: passes.append(3 if torch.is_grad_enabled() else 1))
    batch = make_batch(shape, num_rows=2, length=6, seed=0, version=0)
    result = trainer.train_batch(batch, update_actor=True, expected_version_lag=0)
    trainer.close()
    assert result.metrics["train/micro_batches"] == 1
    assert sum(passes) == FORWARDS_A_STEP == 7


def test_the_steps_rows_carry_loss_in_their_second_half_and_valid_routes():
    shape = make_shape("tiny", vocab_size=64)
    batch = make_batch(shape, num_rows=2, length=6, seed=0, version=3)
    assert batch.loss_mask.tolist() == [0, 0, 0, 1, 1, 1] * 2
    assert batch.weight_versions.tolist() == [-1, -1, -1, 3, 3, 3] * 2
    routes = batch.routed_experts
    assert (
        routes.shape == (10, 4, 2) and (np.diff(routes.astype(int), axis=-1) > 0).all() and routes.max() < 8
    )


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Two rows whose routes are drawn at random: free routing disagrees with them."""
    shape = make_shape("tiny", vocab_size=64)
    model = tmp_path_factory.mktemp("model")
    write_random(shape, model, router_gain=4.0)
    rng = np.random.default_rng(0)

    def answer(num_prompt):
        draws = rng.random((num_prompt + 5 - 1, shape.num_layers, shape.num_experts))
        return Generation(
            output_ids=rng.integers(0, 64, 5, dtype=np.int32),
            output_logprobs=np.full(5, -4.0, np.float32),
            routed_experts=np.sort(np.argsort(draws, -1)[..., :2], -1).astype(np.uint8),
            routed_experts_start=0,
            finish_reason="length",
            weight_version=0,
            output_versions=np.zeros(5, np.int32),
            cached_tokens=0,
        )

    prompts = [rng.integers(0, 64, n, dtype=np.int32) for n in (7, 9)]
    rows = [
        one_call_row(prompt, answer(len(prompt)), f"row/{i}", reward=0.0) for i, prompt in enumerate(prompts)
    ]
    batch = Batch.from_rows(rows, step=0, num_tests=[1, 1])
    return batch, score(model, {16: batch}, precision="fp32", port=29_531, kernels="plain")[16]


def test_the_gap_is_of_the_sampled_tokens_and_replay_follows_the_record(scored):
    batch, found = scored
    mask = batch.loss_mask.astype(bool)
    assert mask.sum() == 10 and not mask[:7].any()
    measured = compare(batch, found, reference=found)
    by_hand = np.abs(found.replayed[mask].astype(float) + 4.0).mean()
    assert measured["replayed"]["abs_mean"] == pytest.approx(by_hand, rel=1e-6)
    assert measured["replayed"]["tokens"] == 10
    assert measured["trainer_against_fp32"]["abs_max"] == 0
    assert measured["engine_against_fp32"]["abs_mean"] == measured["replayed"]["abs_mean"]
    assert not np.allclose(found.replayed[mask], found.free[mask])
    assert 0.5 < measured["flips"]["flip_frac"] <= 1, "random routes are seldom those a router would choose"


def test_without_a_reference_nothing_is_said_of_numerics(scored):
    batch, found = scored
    measured = compare(batch, Scored(found.replayed, found.free, found.flips), reference=None)
    assert set(measured) == {"sampled", "replayed", "free", "flips"}
