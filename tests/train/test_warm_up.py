"""Warming a trainer up: every kind of pass is made, and nothing of it stays."""

import numpy as np
import pytest
from ppo_scenario import SHAPE, pipelined_steps, trainer

from t1core.train.warm_up import made_up_batch


def test_made_up_rows_are_rows_like_any():
    batch = made_up_batch(SHAPE, lengths=(3, 2), with_routes=True)
    assert batch.cu_seqlens.tolist() == [0, 3, 5]
    assert batch.loss_mask.tolist() == [0, 1, 1, 0, 1]
    assert batch.weight_versions.tolist() == [-1, 0, 0, -1, 0]
    assert batch.routed_experts.shape == (3, SHAPE.num_layers, SHAPE.num_experts_per_tok)
    assert (np.diff(batch.routed_experts.astype(int), axis=-1) > 0).all()
    assert made_up_batch(SHAPE, lengths=(3,), with_routes=False).routed_experts is None


@pytest.mark.parametrize(
    "overrides", [{}, {"measure_free_routing": True}, {"use_rollout_routing_replay": False}]
)
def test_a_warm_trainer_trains_to_the_bit_as_a_cold_one(actor_path, overrides):
    found = []
    for is_warm in (False, True):
        with trainer(actor_path, **overrides) as made:
            if is_warm:
                before = made.checksum(), made.checksum("critic")
                seconds = made.warm_up(num_tokens=64)
                assert set(seconds) == {"actor", "critic"} and min(seconds.values()) > 0
                assert (made.checksum(), made.checksum("critic")) == before
                assert not made.actor.has_gradients and not made.critic.has_gradients
            results = pipelined_steps(made)
            found.append(([result.metrics for result in results], made.checksum(), made.checksum("critic")))
    (cold, *cold_sums), (warm, *warm_sums) = found
    assert cold_sums == warm_sums
    for one, other in zip(cold, warm, strict=True):
        np.testing.assert_equal(one, other)


def test_the_passes_of_a_step_are_made_for_two_sizes(actor_path):
    with trainer(actor_path, measure_free_routing=True, max_tokens_per_gpu=4096) as made:
        sizes = {"actor": [], "critic": []}
        for role, learner in made.learners.items():
            learner.model.register_forward_hook(
                lambda _, inputs, __, role=role: sizes[role].append(inputs[0].numel())
            )
        made.warm_up(num_tokens=64)
    # Scored with replay, scored freely and accumulated; the critic scored and accumulated.
    assert sizes["actor"] == [64] * 3 + [32] * 3
    assert sizes["critic"] == [64] * 2 + [32] * 2
