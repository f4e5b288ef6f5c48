"""The learner's switches, each in a real step on a tiny network: what it changes, and what it must not."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from ppo_scenario import SHAPE, adam, make_batch, trainer

from t1core.config.off_policy import OffPolicySettings
from t1core.metrics import check_names
from t1core.rl import ValueBins
from t1core.train.settings import TrainSettings

STEP = dict(update_actor=True, expected_version_lag=0)


def _shared_trial(batch):
    """The batch with rows 0 and 1 made chunks of one trial."""
    rewards = batch.rewards.copy()
    rewards[1] = rewards[0]
    return replace(
        batch,
        rewards=rewards,
        rollout_ids=(batch.rollout_ids[0], *batch.rollout_ids[:1], *batch.rollout_ids[2:]),
    )


def _weights(learner):
    return {name: weight.clone() for name, weight in learner.parameters()}


def _apart(a, b):
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def _noisy(batch, seed=0):
    """The batch with engine log-probs that differ a little from token to token."""
    noise = np.random.default_rng(seed).normal(0, 0.3, len(batch.tokens)).astype(np.float32)
    return replace(
        batch,
        rollout_log_probs=np.where(batch.loss_mask, batch.rollout_log_probs + noise, 0).astype(np.float32),
    )


@pytest.mark.parametrize(
    "off_policy",
    [
        dict(policy_loss="gspo", gspo_eps_clip=0.3, gspo_eps_clip_high=0.3, importance="tis"),
        *(
            pytest.param(values, marks=pytest.mark.slow)
            for values in (
                dict(
                    policy_loss="gspo",
                    gspo_eps_clip=0.3,
                    gspo_eps_clip_high=0.3,
                    ratio_denominator="rollout",
                    trust_region="sat_square",
                ),
                dict(policy_loss="dppo_kl", ratio_denominator="rollout"),
                dict(ratio_denominator="rollout", trust_region="sat_continuous"),
                dict(importance="mis_geometric", mis_high=100.0, mis_low=0.001),
            )
        ),
    ],
    ids=lambda x: "-".join(str(v) for v in x.values()),
)
def test_every_objective_trains_alike_however_the_batch_is_cut(actor_path, off_policy):
    batch, outcomes = _noisy(make_batch(num_rows=6)), []
    for max_tokens in (1000, 60):
        with trainer(
            actor_path,
            max_tokens_per_gpu=max_tokens,
            actor_steps=2,
            off_policy=OffPolicySettings(**off_policy),
        ) as made:
            result = made.train_batch(batch, **STEP)
            outcomes.append((result.metrics, _weights(made.actor)))
    (whole, weights), (cut, other) = outcomes
    check_names(whole)
    assert whole["train/micro_batches"] < cut["train/micro_batches"]
    for name in whole:
        if name.startswith(("actor/", "off_policy/")):
            assert cut[name] == pytest.approx(whole[name], rel=5e-4, abs=1e-5), name
    assert _apart(weights, other) < 5e-6
    assert whole["actor/grad_norm"] > 0


def test_corrections_are_measured_even_when_none_is_applied(actor_path):
    batch = _noisy(make_batch())
    with trainer(actor_path, measure_free_routing=True) as made:
        result = made.train_batch(batch, **STEP)
        critic_only = made.train_batch(batch, update_actor=False, expected_version_lag=0)
    metrics, trained = result.metrics, batch.loss_mask.astype(bool)
    check_names(metrics)
    weight = np.exp(result.per_token["trainer_logprobs"] - batch.rollout_log_probs)[trained].astype(
        np.float64
    )
    assert metrics["off_policy/weight_mean"] == pytest.approx(weight.mean(), rel=1e-5)
    assert metrics["off_policy/tis_clip_frac"] == pytest.approx((weight > 2).mean())
    assert metrics["off_policy/mis_token_drop_frac"] == pytest.approx(((weight < 0.5) | (weight > 2)).mean())
    assert metrics["off_policy/icepop_drop_frac"] == pytest.approx(((weight < 0.5) | (weight > 5)).mean())
    assert metrics["off_policy/weight_ess_frac"] == pytest.approx(
        weight.sum() ** 2 / (len(weight) * (weight**2).sum()), rel=1e-5
    )
    assert metrics["off_policy/gspo_clip_frac"] == 0, "on-policy rows have not moved"
    assert {name.split("/")[1] for name in critic_only.metrics if name.startswith("off_policy/")} >= {
        "weight_mean"
    }
    assert "off_policy/gspo_clip_frac" not in critic_only.metrics
    parts = {
        name: metrics[f"logprob_gap_part/{name}/mean"]
        for name in ("policy_move", "kernel", "total", "routing")
    }
    assert parts["total"] == pytest.approx(parts["policy_move"] + parts["kernel"], abs=1e-6)
    assert parts["kernel"] == pytest.approx(metrics["logprob_gap/mean"], abs=1e-9)
    assert parts["routing"] + parts["kernel"] == pytest.approx(metrics["logprob_gap_free/mean"], abs=1e-6)
    assert parts["policy_move"] == 0


def test_a_policy_that_has_moved_shows_as_policy_move_and_not_as_kernel(actor_path):
    with trainer(actor_path, actor=adam(1e-2)) as made:
        first = made.train_batch(make_batch(), **STEP)
        made.rotate(1)
        lagging = made.train_batch(make_batch(), update_actor=True, expected_version_lag=1)
    assert lagging.metrics["logprob_gap_part/policy_move/abs_mean"] > 1e-3
    assert (
        lagging.metrics["logprob_gap_part/kernel/abs_mean"]
        == first.metrics["logprob_gap_part/kernel/abs_mean"]
    )


def test_weights_that_drop_every_token_leave_the_actor_without_a_step(actor_path):
    band = OffPolicySettings(importance="icepop", icepop_low=1e9, icepop_high=2e9)
    with trainer(actor_path, off_policy=band) as made:
        before = made.checksum()
        result = made.train_batch(make_batch(), **STEP)
        assert made.checksum() == before and made.actor.num_steps == 0 and made.critic.num_steps == 1
    assert result.metrics["actor/skipped"] == 1 and "actor/loss" not in result.metrics
    assert result.metrics["off_policy/icepop_drop_frac"] == 1


def test_chunks_paid_once_form_a_chain_and_at_lambda_one_change_nothing(actor_path):
    batch = _shared_trial(make_batch())
    with trainer(actor_path, critic=adam(1e-2)) as made:
        made.train_batch(batch, update_actor=False, expected_version_lag=0)
        streams = made._put(batch, with_routes=False)
        values = torch.from_numpy(
            made.train_batch(batch, update_actor=False, expected_version_lag=0).per_token["values"]
        )
        for lambd in (1.0, 0.9):
            each = replace(made.settings, lambd=lambd).credit.returns(values, streams=streams)
            once = replace(made.settings, lambd=lambd, chunk_reward="once").credit.returns(
                values, streams=streams
            )
            assert torch.equal(each, once) == (lambd == 1.0)
            rest = streams.rows > 0
            assert torch.equal(each[rest], once[rest]), "only the first chunk sees its successor"
    trained = np.flatnonzero(batch.loss_mask)
    last = trained[trained < batch.cu_seqlens[1]][-1]
    following = trained[trained >= batch.cu_seqlens[1]][0]
    # G of the first chunk's last token: 0.1 V(next) + 0.9 G(next), with no reward of its own.
    assert once[last] == pytest.approx(
        0.1 * values[following].item() + 0.9 * once[following].item(), abs=1e-6
    )


def test_the_critics_lambda_and_the_actors_are_two_numbers(actor_path):
    batch = make_batch()
    with trainer(actor_path, lambd=0.9, critic_lambd=1.0, critic=adam(1e-2)) as made:
        made.train_batch(batch, **STEP)
        result = made.train_batch(batch, update_actor=False, expected_version_lag=0)
    trained = batch.loss_mask.astype(bool)
    row = np.repeat(np.arange(len(batch)), batch.lengths())
    assert np.array_equal(result.per_token["returns"][trained], batch.rewards[row][trained])
    difference = result.per_token["returns"] - result.per_token["values"]
    assert not np.allclose(result.per_token["advantages"][trained], difference[trained], atol=1e-4)


def test_an_hl_gauss_critic_starts_at_the_mean_return_learns_and_comes_back_from_its_directory(
    actor_path, tmp_path
):
    batch = make_batch(rewards=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    bins = ValueBins()
    with trainer(actor_path, value_bins=bins, critic=adam(3e-3, eps=1e-8), value_clip=10.0) as made:
        first = made.train_batch(batch, **STEP)
        for _ in range(5):
            later = made.train_batch(batch, update_actor=False, expected_version_lag=0)
        made.save_weights(tmp_path / "critic", "critic")
        after = made.train_batch(batch, update_actor=False, expected_version_lag=0).per_token["values"]
    check_names(first.metrics)
    trained = batch.loss_mask.astype(bool)
    row_mean = np.mean(batch.rewards)  # the histogram weighs rows alike, as the loss does
    assert first.per_token["values"][trained] == pytest.approx(row_mean, abs=5e-3)
    assert first.metrics["critic/explained_variance"] == pytest.approx(0, abs=1e-4)
    assert later.metrics["critic/loss"] < first.metrics["critic/loss"] - 0.01
    assert first.metrics["critic/return_outside_bins_frac"] == 0
    with trainer(actor_path, value_bins=bins, critic_path=str(tmp_path / "critic")) as made:
        again = made.train_batch(batch, update_actor=False, expected_version_lag=0)
    assert np.array_equal(again.per_token["values"], after)
    for wrong, told in ((None, "ask for a scalar head"), (ValueBins(num=31), "31 bins")):
        with pytest.raises(ValueError, match=told):
            TrainSettings(str(actor_path), str(tmp_path / "critic"), SHAPE, value_bins=wrong)


def test_frozen_parts_keep_every_bit_and_the_rest_learns(actor_path):
    with trainer(
        actor_path, critic_frozen=(r"^model\.",), actor_frozen=(r"layers\.[01]\.", "embed_tokens")
    ) as made:
        actor, critic = _weights(made.actor), _weights(made.critic)
        made.train_batch(make_batch(), **STEP)
        moved = [n for n, w in made.critic.parameters() if not torch.equal(w, critic[n])]
        assert sorted(moved) == ["output_layer.bias", "output_layer.weight"]
        still = {n for n, w in made.actor.parameters() if torch.equal(w, actor[n])}
    assert all(
        name in still for name in actor if "layers.0." in name or "layers.1." in name or "embedding" in name
    )
    assert not any("layers.2." in name for name in still)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("no_such_part", "names no weight"),
        ("(", "no regular expression"),
        ("q_proj", "one tensor here"),
        (".", "nothing is left to train"),
    ],
)
def test_patterns_that_freeze_nothing_a_part_of_a_tensor_or_everything_are_refused(actor_path, pattern, told):
    with pytest.raises(ValueError, match=told):
        TrainSettings(str(actor_path), None, SHAPE, actor_frozen=(pattern,))


def test_kl_pulls_towards_the_starting_policy_and_is_refused_with_replay(actor_path):
    batch = replace(make_batch(), routed_experts=None)
    free = dict(use_rollout_routing_replay=False, actor=adam(3e-3, eps=1e-8))
    drifts = []
    for coef in (0.0, 10.0):
        with trainer(actor_path, kl_loss_coef=coef, **free) as made:
            start = made.train_batch(batch, **STEP).per_token["trainer_logprobs"]
            for version in range(1, 5):
                made.rotate(version)
                step = replace(batch, weight_versions=np.where(batch.loss_mask, version, -1).astype(np.int32))
                end = made.train_batch(step, **STEP)
            drifts.append(np.abs(end.per_token["trainer_logprobs"] - start).mean())
            assert made.snapshots.versions == ((0, 3, 4) if coef else (3, 4))
    assert drifts[1] < 0.7 * drifts[0]
    with pytest.raises(ValueError, match=r"kl_loss_coef=10\.0"):
        TrainSettings(str(actor_path), None, SHAPE, kl_loss_coef=10.0)


def test_the_load_balancing_loss_reaches_the_routers_and_counts_once(actor_path):
    batch = replace(make_batch(), routed_experts=None)
    quiet = dict(
        actor=adam(1e-3, eps=1e-8),
        use_rollout_routing_replay=False,
        off_policy=OffPolicySettings(importance="icepop", icepop_low=1e9, icepop_high=2e9),
    )
    with trainer(actor_path, moe_aux_loss_coeff=1.0, **quiet) as made:
        before = _weights(made.actor)
        norm = made.train_batch(batch, **STEP).metrics["actor/grad_norm"]
        moved = {n for n, w in made.actor.parameters() if float((w - before[n]).abs().max()) > 5e-4}
    assert norm > 0 and any("router" in name for name in moved)
    assert "output_layer.weight" not in moved
    with trainer(actor_path, moe_aux_loss_coeff=2.0, max_tokens_per_gpu=1000, **quiet) as made:
        double = made.train_batch(batch, **STEP).metrics["actor/grad_norm"]
    assert double == pytest.approx(2 * norm, rel=0.05), (
        "the weight counts once, whatever the number of tokens"
    )
    with pytest.raises(ValueError, match=r"moe_aux_loss_coeff=1\.0"):
        TrainSettings(str(actor_path), None, SHAPE, moe_aux_loss_coeff=1.0)


def test_whitened_advantages_reach_the_loss(actor_path):
    batch = make_batch()
    with trainer(actor_path, normalize_advantages=True) as made:
        result = made.train_batch(batch, **STEP)
    trained = batch.loss_mask.astype(bool)
    assert result.per_token["advantages"][trained].mean() == pytest.approx(0, abs=1e-5)
    assert result.per_token["advantages"][trained].std() == pytest.approx(1, abs=1e-4)
    assert math.isfinite(result.metrics["actor/loss"])
