"""Whole campaigns of a few steps on a random policy: one without a critic, and one that goes on from a checkpoint."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from t1core.metrics import check_names
from t1core.store import Run
from t1core.store.token_file import read_batch

SMALL = (
    "evaluation.tasks_per_split=1",
    "agent.max_turns=1",
    "agent.max_new_tokens=32",
    "rollout.rollout_batch_size=4",
    "rollout.over_sampling_batch_size=4",
    "rollout.max_live_trials=4",
)


@pytest.fixture
def box_root():
    """A directory that boxes, which run as another uid, can reach."""
    directory = Path(tempfile.mkdtemp(prefix="t1-boxes-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def campaign(name, overrides, box_root):
    """Run `t1 campaign smoke`; its exit code and what it said."""
    words = [word for override in (*SMALL, *overrides) for word in ("--set", override)]
    ended = subprocess.run(
        [sys.executable, "-m", "t1core.cli", "campaign", "smoke", "--run-name", name, *words],
        capture_output=True,
        text=True,
        env=os.environ | {"T1CORE_BOX_DIR": str(box_root)},
    )
    return ended.returncode, ended.stdout + ended.stderr


def weights(directory):
    return load_file(directory / "model.safetensors")


def same_bits(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.slow
def test_a_campaign_without_a_critic_that_earns_nothing_moves_no_weight_and_says_so(
    tmp_path, settings, actor, box_root
):
    # A random policy passes no test, so every group is flat.
    overrides = [
        "num_steps=2", "train.advantage=grpo", "rollout.samples_per_task=2", "train.num_critic_only_steps=0",
    ]  # fmt: skip
    code, said = campaign("flat", [*settings, *overrides], box_root)
    assert code == 0, said[-3000:]
    run = Run.open(tmp_path / "runs" / "smoke" / "flat")
    metrics = run.metrics("train")
    check_names(metrics.columns)
    assert (metrics["reward/zero_variance_group_frac"] == 1).all() and (metrics["actor/skipped"] == 1).all()
    assert (metrics["rollout/groups"] == 2).all() and (metrics["rollout/distinct_tasks"] == 2).all()
    assert metrics["rollout/group_idle_frac"].between(0, 1).all()
    assert said.count("no actor step: every group is flat") == 2
    assert not [name for name in metrics.columns if name.startswith("critic/")]
    final = run.folder("checkpoints") / "final"
    assert [path.name for path in final.iterdir()] == ["actor"]
    assert same_bits(weights(final / "actor"), weights(actor))


@pytest.mark.slow
def test_a_campaign_goes_on_from_a_checkpoint_and_samples_by_its_weights_first(tmp_path, settings, box_root):
    rates = ["train.actor={lr=1e-2, weight_decay=0.0}", "train.critic={lr=1e-2, weight_decay=0.0}"]
    steps = ["num_steps=2", "train.num_critic_only_steps=0", *rates]
    code, said = campaign("first", [*settings, *steps, "checkpoint_every=1"], box_root)
    assert code == 0, said[-3000:]
    first = Run.open(tmp_path / "runs" / "smoke" / "first").folder("checkpoints")
    restored = first / "step_0002"
    assert same_bits(weights(restored / "hf" / "actor"), weights(first / "final" / "actor"))
    load = f"train.load={restored}"

    code, said = campaign(
        "second", [*settings, "num_steps=1", "train.num_critic_only_steps=0", *rates, load], box_root
    )
    assert code == 0, said[-3000:]
    second = Run.open(tmp_path / "runs" / "smoke" / "second")
    batch, _ = read_batch(second.path / "tokens" / "step_0000.safetensors")
    assert set(batch.weight_versions[batch.loss_mask.astype(bool)].tolist()) == {2}, (
        "two actor steps had been made"
    )
    # The engine's log-probs are the restored weights': the starting ones are far off, at this rate.
    assert second.metrics("train")["logprob_gap/abs_mean"].iloc[0] < 0.05
    assert not same_bits(
        weights(second.folder("checkpoints") / "final" / "critic"), weights(restored / "hf" / "critic")
    )

    frozen = 'train.critic_frozen=["embed_tokens"]'
    code, said = campaign(
        "third", [*settings, "num_steps=1", "train.num_critic_only_steps=0", load, frozen], box_root
    )
    assert code != 0 and "critic_frozen=['embed_tokens'] is not []" in said, said[-3000:]
