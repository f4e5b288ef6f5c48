"""Half a campaign: rollout that only stores, training on what was stored, and both together as a campaign has them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from t1core.campaign.asset import Assets
from t1core.campaign.asset_key import weights_key
from t1core.campaign.one_sided import as_sampled_by, roll_out, train_stored
from t1core.cli import app
from t1core.config import load_config
from t1core.store import Run, RunState
from tests.store.records_by_hand import batch

QUICK = ["num_steps=2", "agent.max_turns=1", "agent.max_new_tokens=24", "train.num_critic_only_steps=0"]


@pytest.fixture(scope="module")
def stored(actor, pool, tmp_path_factory):
    """A run of two batches that nobody trained on."""
    given = [f"model.actor_path={actor}", f"tasks.pool={pool}", f"run_root={tmp_path_factory.mktemp('runs')}"]
    given += ["cluster.min_free_memory_mb=500", "cluster.min_free_disk_mb=50"]
    said = []
    run = roll_out(load_config("smoke", [*given, *QUICK]), actor, pool=pool, say=said.append)
    assert sum(line.startswith("step ") for line in said) == 2
    return run


def test_rollout_without_training_stores_batches_that_pass_the_audit(stored):
    assert stored.status().state is RunState.FINISHED and stored.token_steps() == [0, 1]
    trials = stored.trials("train")
    found, per_token = stored.batch(1)
    assert set(found.rollout_ids) <= set(trials[trials["step"] == 1]["trial_id"]) and per_token == {}
    assert found.weight_versions[found.loss_mask.astype(bool)].max() == 0
    assert found.routed_experts is not None and not (stored.path / "checkpoints" / "final").exists()
    told = CliRunner().invoke(app, ["audit", str(stored.path)])
    assert told.exit_code == 0 and "2 steps are as they were sampled" in told.output, told.output


def test_training_without_rollout_moves_the_weights_and_keeps_what_it_computed(stored, actor, tmp_path):
    # An untrained policy earns nothing, and a fresh critic expects nothing: some rows are given a reward.
    with Run.create(tmp_path, campaign="c", run_name="paid", config={}, provenance={}) as paid:
        for step in (0, 1):
            found, _ = stored.batch(step)
            rewards = (np.arange(len(found)) % 2 * 0.5).astype(np.float32)
            paid.record_tokens(replace(found, rewards=rewards), per_token={})
    said = []
    config = load_config("smoke", [f"run_root={tmp_path}", *QUICK, "name=trained"])
    run = train_stored(config, Run.open(paid.path), actor=actor, critic=None, say=said.append)
    assert run.status().state is RunState.FINISHED and run.token_steps() == [0, 1]
    found, per_token = run.batch(1)
    assert {"values", "advantages", "trainer_logprobs"} <= set(per_token)
    assert np.array_equal(found.tokens, stored.batch(1)[0].tokens)
    assert weights_key(run.path / "checkpoints/final/actor") != weights_key(actor)
    # The second batch came from version 0, where this schedule would have sampled it with version 0 as well.
    assert not [line for line in said if "other versions" in line]
    metrics = run.metrics("train")
    assert metrics["logprob_gap/abs_mean"].max() < 0.05 and metrics["actor/grad_norm"].min() > 0


def test_training_that_breaks_leaves_a_run_that_says_so(stored, actor, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr("t1core.train.trainer.Trainer.train_batch", broken)
    config = load_config("smoke", [f"run_root={tmp_path}", *QUICK, "name=broken"])
    with pytest.raises(RuntimeError, match="no such kernel"):
        train_stored(config, stored, actor=actor, critic=None, say=lambda line: None)
    (path,) = (tmp_path / "broken").iterdir()
    run = Run.open(path)
    assert (run.status().state, run.status().error) == (RunState.FAILED, "RuntimeError: no such kernel")
    assert len(run.failures()) == 1


def test_tokens_of_other_versions_are_taken_as_the_schedules_and_said():
    found, _ = batch("a", "b")
    made = replace(found, weight_versions=np.arange(len(found.tokens), dtype=np.int32))
    moved, is_moved = as_sampled_by(made, 7)
    mask = made.loss_mask.astype(bool)
    assert is_moved and set(moved.weight_versions[mask]) == {7}
    assert np.array_equal(moved.weight_versions[~mask], made.weight_versions[~mask])
    assert as_sampled_by(moved, 7)[1] is False


def test_a_run_without_tokens_and_a_schedule_that_decides_nothing_are_refused(stored, tmp_path, actor):
    with Run.create(tmp_path, campaign="c", run_name="r", config={}, provenance={}) as run:
        pass
    with pytest.raises(ValueError, match="stores no tokens"):
        train_stored(load_config("smoke"), Run.open(run.path), actor=actor, critic=None)
    late = load_config("smoke", ["rollout.publish_every=2"])
    with pytest.raises(ValueError, match=r"rollout\.publish_every=2: which versions sample"):
        train_stored(late, stored, actor=actor, critic=None)


@pytest.mark.slow
def test_a_campaigns_stored_batches_give_the_weights_that_it_ended_with(settings, actor, pool):
    from t1core.campaign.campaign import run_campaign

    config = load_config("smoke", [*settings, "num_steps=3", "agent.max_turns=1", "evaluation.every=0"])
    path = run_campaign(
        config,
        Assets(pool=Path(pool), actor=Path(actor), critic=None),
        is_evaluated=False,
        say=lambda line: None,
    )
    again = train_stored(config, Run.open(path), actor=actor, critic=None, say=lambda line: None)
    for role in ("actor", "critic"):
        assert weights_key(again.path / "checkpoints/final" / role) == weights_key(
            path / "checkpoints/final" / role
        )
