"""Batches of trials that lived on across updates: each token against the snapshot that sampled it."""

import numpy as np
import pytest
from ppo_scenario import adam, make_batch, trainer


def mixed():
    """Every other loss token of the batch was sampled by version 1, the rest by version 0."""
    batch = make_batch(seed=1)
    batch.weight_versions[np.flatnonzero(batch.loss_mask)[::2]] = 1
    return batch


def test_each_token_is_scored_by_the_snapshot_that_sampled_it(actor_path):
    with trainer(actor_path, actor=adam(1e-2), max_version_lag=2, measure_free_routing=True) as made:
        scores, free = {}, {}
        for version in (0, 1):
            batch = make_batch(seed=1, version=version)
            result = made.train_batch(batch, update_actor=True, expected_version_lag=0)
            scores[version], free[version] = (
                result.per_token[name] for name in ("trainer_logprobs", "free_logprobs")
            )
            made.rotate(version + 1)
        assert made.snapshots.versions == (0, 1, 2)
        live = made.checksum()
        batch = mixed()
        result = made.train_batch(batch, update_actor=False, expected_version_lag=1, max_version_lag=2)
        assert made.checksum() == live, "the live weights came back to the bit"
        stepped = made.train_batch(mixed(), update_actor=True, expected_version_lag=1, max_version_lag=2)
    newer = batch.weight_versions == 1
    trained = batch.loss_mask.astype(bool)
    for name, seen in (("trainer_logprobs", scores), ("free_logprobs", free)):
        expected = np.where(newer, seen[1], seen[0])
        assert np.array_equal(result.per_token[name][trained], expected[trained]), name
    assert not np.allclose(scores[0][trained], scores[1][trained], atol=1e-3), "the versions differ"
    assert result.metrics["staleness/max"] == 2 and 1 < result.metrics["staleness/mean"] < 2
    assert np.isfinite(stepped.metrics["actor/loss"]) and stepped.metrics["actor/kl_behaviour"] > 0


def test_what_is_older_than_the_bound_is_refused_before_anything_moves(actor_path):
    with trainer(actor_path, max_version_lag=2) as made:
        for version in (1, 2):
            made.train_batch(make_batch(version=version - 1), update_actor=True, expected_version_lag=0)
            made.rotate(version)
        before = made.checksum()
        with pytest.raises(AssertionError, match=r"versions \[0, 1\], 1 to 2 behind 2; expected 0 to 1"):
            made.train_batch(mixed(), update_actor=True, expected_version_lag=0, max_version_lag=1)
        with pytest.raises(AssertionError, match=r"versions \[0, 1\] in one batch, expected one"):
            made.train_batch(mixed(), update_actor=True, expected_version_lag=1)
        assert made.checksum() == before


def test_updates_that_are_not_published_are_made_against_the_weights_that_sampled(actor_path):
    """Two updates between publications, as rollout.publish_every=2 has it: versions count updates."""
    with trainer(actor_path, actor=adam(1e-2)) as made:
        first = made.train_batch(make_batch(seed=1), update_actor=True, expected_version_lag=0)
        second = made.train_batch(make_batch(seed=1), update_actor=True, expected_version_lag=0)
        made.rotate(2)
        assert made.snapshots.versions == (0, 2)
        third = made.train_batch(make_batch(seed=1), update_actor=False, expected_version_lag=2)
    scored = [result.per_token["trainer_logprobs"] for result in (first, second, third)]
    assert np.array_equal(scored[0], scored[1]) and np.array_equal(scored[0], scored[2])
    assert first.metrics["actor/ratio_max"] == 1 and second.metrics["actor/kl_behaviour"] > 0
    assert third.metrics["staleness/mean"] == 2


def test_a_kl_loss_acts_beside_replay_where_an_experiment_asks_for_it(actor_path):
    norms = []
    for weight in (0.0, 1.0):
        with trainer(
            actor_path, actor=adam(1e-2), kl_loss_coef=weight, regularize_under_replay=weight > 0
        ) as made:
            made.train_batch(make_batch(seed=1), update_actor=True, expected_version_lag=0)
            again = made.train_batch(make_batch(seed=1), update_actor=True, expected_version_lag=0)
            norms.append(again.metrics["actor/grad_norm"])
    assert norms[0] != norms[1]
