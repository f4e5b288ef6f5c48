"""A campaign of a few steps on a random policy, without a critic."""

import numpy as np
import pytest
from one_process import run_here
from safetensors.numpy import load_file

from t1core.metrics import check_names

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
