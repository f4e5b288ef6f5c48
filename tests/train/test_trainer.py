"""PPO steps on a random tiny network: what must hold in every campaign."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from ppo_scenario import adam, make_batch, trainer, without_loss

from t1core.metrics import check_names
from t1core.model import replay
from t1core.train.actor_update import score_batch
from t1core.train.packing import assign_rows, pack_rows

STEP = dict(update_actor=True, expected_version_lag=0)


def _weights(learner):
    return {name: weight.clone() for name, weight in learner.parameters()}


def _distance(a, b):
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def test_one_batch_end_to_end_with_replay(actor_path):
    batch = make_batch()
    with trainer(actor_path, measure_free_routing=True) as made:
        actor, critic = _weights(made.actor), _weights(made.critic)
        result = made.train_batch(batch, **STEP)
        assert _distance(actor, _weights(made.actor)) > 0
        assert _distance(critic, _weights(made.critic)) > 0
    check_names(result.metrics)
    trained = batch.loss_mask.astype(bool)
    row = np.repeat(np.arange(len(batch)), batch.lengths())
    assert np.array_equal(result.per_token["returns"][trained], batch.rewards[row][trained])
    assert np.array_equal(
        result.per_token["advantages"][trained],
        batch.rewards[row][trained] - result.per_token["values"][trained],
    )
    assert not result.per_token["advantages"][~trained].any()
    assert result.metrics["train/loss_tokens"] == trained.sum()
    assert result.metrics["train/skipped"] == 0
    assert result.metrics["actor/ratio_max"] == pytest.approx(1, abs=1e-5), "the first batch is on-policy"
    assert result.metrics["critic/loss"] > 0
    assert result.metrics["staleness/mean"] == 0
    assert 0 < result.metrics["actor/entropy"] <= math.log(64)
    assert set(result.metrics) >= {f"critic/ev_quartile/{q}" for q in (1, 2, 3, 4)}
    assert all(math.isfinite(v) for k, v in result.metrics.items() if not k.startswith("critic/e")), (
        result.metrics
    )
    assert not np.array_equal(result.per_token["trainer_logprobs"], result.per_token["free_logprobs"])
    assert {stream.dtype for stream in result.per_token.values()} == {np.dtype(np.float32)}
    assert {stream.shape for stream in result.per_token.values()} == {batch.tokens.shape}


def test_replaying_the_trainers_own_choices_scores_like_free_routing_to_the_bit(actor_path):
    batch = make_batch()
    with trainer(actor_path, measure_free_routing=True) as made:
        routes = np.zeros_like(batch.routed_experts)
        for rows in assign_rows(batch.lengths(), max_tokens=256, num_ranks=1)[0]:
            micro = pack_rows(batch, rows=rows)
            replay.record(made.actor.model)
            made.actor.score(made._put(batch, with_routes=False).micro_batches, lambda out, _: None)
            chosen = replay.recorded(made.actor.model).numpy()
            replay.disarm(made.actor.model)
            held = micro.route_source >= 0
            routes[micro.route_source[held]] = chosen[held]
        result = made.train_batch(replace(batch, routed_experts=routes), **STEP)
    trained = batch.loss_mask.astype(bool)
    assert np.array_equal(
        result.per_token["trainer_logprobs"][trained], result.per_token["free_logprobs"][trained]
    )


def test_losses_gradients_and_weights_do_not_depend_on_the_number_of_micro_batches(actor_path):
    batch, outcomes = make_batch(num_rows=9), []
    for max_tokens in (1000, 90, 41):
        with trainer(actor_path, max_tokens_per_gpu=max_tokens) as made:
            result = made.train_batch(batch, **STEP)
            outcomes.append((result, _weights(made.actor), _weights(made.critic)))
    (whole, *_), counts = outcomes[0], [r.metrics["train/micro_batches"] for r, _, _ in outcomes]
    assert counts[0] == 1 and counts[0] < counts[1] < counts[2]
    for result, actor, critic in outcomes[1:]:
        for name in ("actor/loss", "critic/loss", "actor/grad_norm", "critic/grad_norm", "actor/entropy"):
            assert result.metrics[name] == pytest.approx(whole.metrics[name], rel=2e-4, abs=1e-6), name
        assert _distance(actor, outcomes[0][1]) < 2e-6
        assert _distance(critic, outcomes[0][2]) < 2e-6


@pytest.mark.parametrize("aggregation", ["row_mean", "token_mean"])
def test_the_critic_loss_is_the_weighted_sum_of_its_token_terms(actor_path, aggregation):
    batch = make_batch()
    with trainer(actor_path, loss_aggregation=aggregation) as made:
        result = made.train_batch(batch, **STEP)
    error = (result.per_token["values"] - result.per_token["returns"]) ** 2
    trained = batch.loss_mask.astype(bool)
    row = np.repeat(np.arange(len(batch)), batch.lengths())
    means = [error[trained & (row == i)].mean() for i in range(len(batch))]
    expected = np.mean(means) if aggregation == "row_mean" else error[trained].mean()
    assert result.metrics["critic/loss"] == pytest.approx(float(expected), rel=1e-5)


def test_the_denominator_is_the_snapshot_that_sampled_not_the_live_actor(actor_path):
    with trainer(actor_path, actor=adam(1e-2)) as made:
        first = made.train_batch(make_batch(seed=1), **STEP)
        made.rotate(1)
        live = made.checksum()
        again = made.train_batch(make_batch(seed=1), update_actor=False, expected_version_lag=1)
        assert made.checksum() == live, "the live weights came back to the bit"
        now = made.train_batch(make_batch(seed=1, version=1), update_actor=False, expected_version_lag=0)
        stepped = made.train_batch(make_batch(seed=1), update_actor=True, expected_version_lag=1)
    assert np.array_equal(again.per_token["trainer_logprobs"], first.per_token["trainer_logprobs"])
    assert not np.allclose(now.per_token["trainer_logprobs"], first.per_token["trainer_logprobs"], atol=1e-3)
    assert abs(stepped.metrics["actor/ratio_max"] - 1) > 1e-3
    assert stepped.metrics["actor/kl_behaviour"] > 0


def test_at_most_two_snapshots_are_kept_and_rotating_without_a_step_is_harmless(actor_path):
    with trainer(actor_path) as made:
        made.rotate(0)
        assert made.snapshots.versions == (0,)
        for version in (1, 2, 3):
            made.train_batch(make_batch(version=version - 1), **STEP)
            made.rotate(version)
        assert made.snapshots.versions == (2, 3)
        with pytest.raises(AssertionError, match="version 3 after"):
            made.train_batch(make_batch(version=3), **STEP)
            made.rotate(3)


def test_a_batch_of_unexpected_staleness_is_refused_before_anything_moves(actor_path):
    with trainer(actor_path) as made:
        before = made.checksum(), made.checksum("critic")
        with pytest.raises(AssertionError, match="sampled by version 0, 0 behind 0; expected 1"):
            made.train_batch(make_batch(), update_actor=True, expected_version_lag=1)
        mixed = make_batch()
        mixed.weight_versions[np.flatnonzero(mixed.loss_mask)[0]] = 5
        with pytest.raises(AssertionError, match=r"versions \[0, 5\]"):
            made.train_batch(mixed, **STEP)
        assert (made.checksum(), made.checksum("critic")) == before


def test_values_before_the_update_anchor_the_clip_and_the_advantages_through_several_critic_steps(actor_path):
    batch = make_batch(rewards=[1.0] * 6)
    with trainer(actor_path, critic=adam(1e-1), critic_steps=3, value_clip=0.01) as made:
        streams = made._put(batch, with_routes=False)
        before = streams.merge(
            made.critic.score(streams.micro_batches, lambda out, _: out.squeeze(-1))
        ).numpy()
        result = made.train_batch(batch, **STEP)
    assert np.array_equal(result.per_token["values"], before)
    assert result.metrics["critic/clip_frac"] > 0.5, "later steps have left the clip range around V_old"


@pytest.mark.parametrize("lambd", [1.0, 0.9])
def test_values_are_those_of_the_old_weights_whether_or_not_the_first_update_shares_its_pass(
    actor_path, lambd
):
    batch = make_batch()
    with trainer(actor_path, lambd=lambd, critic=adam(1e-2)) as made:
        made.train_batch(batch, update_actor=False, expected_version_lag=0)
        streams = made._put(batch, with_routes=False)
        before = streams.merge(
            made.critic.score(streams.micro_batches, lambda out, _: out.squeeze(-1))
        ).numpy()
        result = made.train_batch(batch, update_actor=False, expected_version_lag=0)
    assert np.any(before != 0)
    assert np.array_equal(result.per_token["values"], before)
    trained = batch.loss_mask.astype(bool)
    row = np.repeat(np.arange(len(batch)), batch.lengths())
    assert np.array_equal(result.per_token["returns"][trained], batch.rewards[row][trained]) == (lambd == 1.0)


def test_the_critic_learns_a_constant(actor_path):
    batch = make_batch(rewards=[0.35] * 6)
    with trainer(actor_path, critic=adam(3e-3, eps=1e-8), value_clip=10.0) as made:
        for _ in range(60):
            result = made.train_batch(batch, update_actor=False, expected_version_lag=0)
    assert abs(result.metrics["critic/value_bias"]) < 0.02
    assert math.isnan(result.metrics["critic/explained_variance"]), "returns do not vary"
    assert "actor/loss" not in result.metrics


def test_a_positive_advantage_makes_the_sampled_tokens_likelier(actor_path):
    batch = make_batch(rewards=[1.0] * 6)
    with trainer(actor_path, actor=adam(1e-3, eps=1e-8)) as made:
        before = made.train_batch(batch, **STEP).per_token["trainer_logprobs"]
        made.rotate(1)
        later = make_batch(rewards=[1.0] * 6, version=1)
        after = made.train_batch(later, update_actor=False, expected_version_lag=0).per_token[
            "trainer_logprobs"
        ]
    trained = batch.loss_mask.astype(bool)
    assert after[trained].mean() > before[trained].mean() + 1e-3


def test_a_batch_without_trainable_tokens_makes_no_step_and_says_so(actor_path):
    with trainer(actor_path) as made:
        before = made.checksum(), made.checksum("critic")
        result = made.train_batch(without_loss(make_batch()), **STEP)
        assert (made.checksum(), made.checksum("critic")) == before
    assert result.metrics["train/skipped"] == 1
    assert result.metrics["train/loss_tokens"] == 0
    assert np.isnan(result.per_token["values"]).all()


def test_poison_at_masked_positions_changes_nothing(actor_path):
    batch, checksums = make_batch(), []
    for poison in (0.0, math.nan, math.inf, -1000.0):
        dirty = replace(batch, rollout_log_probs=np.where(batch.loss_mask, -4.0, poison).astype(np.float32))
        with trainer(actor_path) as made:
            result = made.train_batch(dirty, **STEP)
            checksums.append(
                (made.checksum(), made.checksum("critic"), result.metrics["logprob_gap/abs_mean"])
            )
    assert len(set(checksums)) == 1


def test_a_supervised_step_lowers_the_loss_and_starts_from_its_hand_worked_value(actor_path):
    batch = replace(make_batch(), routed_experts=None)
    with trainer(actor_path, use_rollout_routing_replay=False, actor=adam(2e-3, eps=1e-8)) as made:
        streams = made._put(batch, with_routes=False)
        scored = score_batch(made.actor, streams=streams, replayed=False).numpy()
        losses = [made.supervised_step(batch) for _ in range(8)]
    assert losses[0] == pytest.approx(-float(scored[batch.loss_mask.astype(bool)].mean()), rel=1e-5)
    assert losses[-1] < losses[0] - 0.3


def test_replay_without_routes_is_refused_with_the_way_out(actor_path):
    with trainer(actor_path) as made:
        with pytest.raises(ValueError, match="use_rollout_routing_replay"):
            made.train_batch(replace(make_batch(), routed_experts=None), **STEP)


def test_bf16_weights_with_fp32_gradients_take_a_step(actor_path):
    with trainer(actor_path, precision="bf16") as made:
        result = made.train_batch(make_batch(), **STEP)
        kinds = {param.main_grad.dtype for param in made.actor.model.parameters()}
    assert kinds == {torch.float32}
    assert math.isfinite(result.metrics["actor/grad_norm"])
