"""Campaigns of a few steps on a random policy: one without a critic, and one that goes on from a checkpoint."""

import numpy as np
import pytest
from one_process import run_here
from safetensors.numpy import load_file

from t1core.metrics import check_names
from t1core.store.token_file import read_batch

SMALL = (
    "agent.max_turns=1",
    "agent.max_new_tokens=32",
    "cluster.probe_grace_s=3600",
    "rollout.rollout_batch_size=4",
    "rollout.over_sampling_batch_size=4",
    "rollout.max_live_trials=4",
    "train.num_critic_only_steps=0",
)


def weights(directory):
    return load_file(directory / "model.safetensors")


def same_bits(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.fixture
def run(settings, actor, pool, monkeypatch):
    return lambda name, *overrides: run_here(
        [*settings, *SMALL, *overrides], actor=actor, pool=pool, name=name, monkeypatch=monkeypatch
    )


@pytest.mark.slow
def test_a_campaign_without_a_critic_that_earns_nothing_moves_no_weight_and_says_so(run, actor):
    # A random policy passes no test, so every group is flat.
    stored, said = run("flat", "num_steps=2", "train.advantage=grpo", "rollout.samples_per_task=2")
    metrics = stored.metrics("train")
    check_names(metrics.columns)
    assert (metrics["reward/zero_variance_group_frac"] == 1).all() and (metrics["actor/skipped"] == 1).all()
    assert (metrics["rollout/groups"] == 2).all() and (metrics["rollout/distinct_tasks"] == 2).all()
    assert metrics["rollout/group_idle_frac"].between(0, 1).all()
    assert len([line for line in said if "no actor step: every group is flat" in line]) == 2
    assert not [name for name in metrics.columns if name.startswith("critic/")]
    final = stored.folder("checkpoints") / "final"
    assert [path.name for path in final.iterdir()] == ["actor"]
    assert same_bits(weights(final / "actor"), weights(actor))


@pytest.mark.slow
def test_a_campaign_goes_on_from_a_checkpoint_and_samples_by_its_weights_first(run, actor):
    # A trial of two turns that passes nothing costs nine tenths of a test: a reward to learn from.
    paid = ("agent.max_turns=2", "reward.shaping=multiplicative", "reward.healthy_turns=1")
    rates = ("train.actor={lr=1e-3, weight_decay=0.0}", "train.critic={lr=1e-2, weight_decay=0.0}")
    common = (*paid, "reward.idle_penalty_tests=0.9", *rates)
    first, _ = run("first", "num_steps=2", "checkpoint_every=1", *common)
    assert (first.metrics("train")["reward/trained_mean"] < 0).all()
    assert (first.metrics("train")["actor/grad_norm"] > 0).all()
    restored = first.folder("checkpoints") / "step_0002"
    final = first.folder("checkpoints") / "final"
    assert same_bits(weights(restored / "hf" / "actor"), weights(final / "actor"))
    assert not same_bits(weights(restored / "hf" / "actor"), weights(actor))
    load = f"train.load={restored}"

    with pytest.raises(ValueError, match=r"critic_frozen=\['embed_tokens'\] is not \[\]"):
        run("refused", "num_steps=1", *common, load, 'train.critic_frozen=["embed_tokens"]')

    second, _ = run("second", "num_steps=1", *common, load)
    batch, _ = read_batch(second.path / "tokens" / "step_0000.safetensors")
    assert set(batch.weight_versions[batch.loss_mask.astype(bool)].tolist()) == {2}, (
        "two actor steps had been made"
    )
    assert second.metrics("train")["logprob_gap/abs_mean"].iloc[0] < 0.05
    assert not same_bits(
        weights(second.folder("checkpoints") / "final" / "critic"), weights(restored / "hf" / "critic")
    )
