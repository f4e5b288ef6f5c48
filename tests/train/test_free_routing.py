"""Flips: a router choice that differs from the record counts once, where it happens and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
from ppo_scenario import SHAPE, make_batch, trainer
from replay_rank import _choices

from t1core.model import replay
from t1core.train.actor_update import score_batch


def own_record(made, batch):
    """The experts that the actor chooses by itself."""
    streams = made._put(batch, with_routes=True)
    replay.record(made.actor.model)
    score_batch(made.actor, streams=streams, replayed=False)
    _, record = _choices(made, streams, batch)
    replay.disarm(made.actor.model)
    return replace(batch, routed_experts=record)


def other_experts(chosen):
    """A set of as many experts, none of them among `chosen`."""
    left = [e for e in range(SHAPE.num_experts) if e not in chosen]
    return np.array(left[: len(chosen)], np.uint8)


def test_a_planted_flip_is_counted_where_it_was_planted(actor_path):
    with trainer(actor_path, measure_free_routing=True) as made:
        batch = own_record(made, make_batch())
        free, flips = made.score_freely(batch)
        assert not flips.any()
        assert np.array_equal(free, made.score(batch)), "the record is what free routing chooses"
        assert (
            made.train_batch(batch, update_actor=False, expected_version_lag=0).metrics["routing/flip_frac"]
            == 0
        )
        routes = batch.routed_experts.copy()
        # Row 1's token at position 8 is predicted by position 7, whose route is row 7 of its record; layer 2 of 4.
        token = int(batch.cu_seqlens[1]) + 8
        assert batch.loss_mask[token - 1 : token + 2].any()
        routes[token - 1 - 1, 2] = other_experts(routes[token - 1 - 1, 2])
        planted = replace(batch, routed_experts=routes, loss_mask=_only(batch, token))
        _, flips = made.score_freely(planted)
        assert np.argwhere(flips).tolist() == [[token, 2]]
        versions = np.where(planted.loss_mask, 0, -1).astype(np.int32)
        metrics = made.train_batch(
            replace(planted, weight_versions=versions), update_actor=False, expected_version_lag=0
        ).metrics
    assert metrics["routing/flip_frac"] == pytest.approx(1 / SHAPE.num_layers)
    assert metrics["routing/flip_token_frac"] == 1


def test_random_routes_flip_about_as_often_as_chance_says(actor_path):
    with trainer(actor_path) as made:
        _, flips = made.score_freely(make_batch(num_rows=12))
    predicted = np.ones(len(flips), bool)
    predicted[make_batch(num_rows=12).cu_seqlens[:-1]] = False
    assert not flips[~predicted].any(), "nothing predicts a row's first token"
    # A random pair of 8 is the chosen one in 1 of C(8, 2) = 28 cases.
    assert flips[predicted].mean() == pytest.approx(27 / 28, abs=0.02)


def _only(batch, token):
    mask = np.zeros_like(batch.loss_mask)
    mask[token] = 1
    return mask
