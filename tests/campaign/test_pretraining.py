"""Offline value pretraining on a run's stored trajectories: which rows it takes, that it learns, what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from t1core.campaign.pretraining import pretrain_critic, split_by_trial, stored_batches
from t1core.config import load_config
from t1core.model.checkpoint import init_hf
from t1core.model.shape import ModelShape
from t1core.records import Batch
from t1core.store import Run

SHAPE = ModelShape.nano(
    vocab_size=64, hidden_size=32, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=2,
    linear_key_head_dim=16, linear_value_head_dim=16, moe_intermediate_size=16, shared_expert_intermediate_size=16,
    num_experts=4,
)  # fmt: skip


def _batch(step, *, version, rows=8):
    """Rows of one token over and over; the token tells the reward."""
    generator = np.random.default_rng(step)
    good = generator.permutation(np.arange(rows) % 2).astype(bool)
    tokens = np.repeat(np.where(good, 7, 3), 6).astype(np.int32)
    mask = np.tile([0, 0, 1, 1, 1, 1], rows).astype(np.uint8)
    return Batch(
        step=step,
        rollout_ids=tuple(f"s{step}-{row}" for row in range(rows)),
        tokens=tokens,
        cu_seqlens=np.arange(rows + 1, dtype=np.int64) * 6,
        loss_mask=mask,
        rollout_log_probs=np.zeros(len(tokens), np.float32),
        weight_versions=np.where(mask, version, -1).astype(np.int32),
        routed_experts=None,
        rewards=np.where(good, 0.6, 0.1).astype(np.float32),
        num_tests=np.full(rows, 12, np.int32),
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three stored steps, sampled by versions 0, 1 and 3."""
    with Run.create(
        tmp_path_factory.mktemp("runs"), campaign="c", run_name="r", config={}, provenance={}
    ) as writer:
        for step, version in enumerate((0, 1, 3)):
            writer.record_tokens(_batch(step, version=version), per_token={})
    return writer.path


def test_rows_are_kept_by_the_age_of_their_oldest_token(run):
    ages = {
        age: [batch.step for batch in stored_batches(Run.open(run), max_age=age)] for age in (None, 0, 2, 3)
    }
    assert ages == {None: [0, 1, 2], 0: [2], 2: [1, 2], 3: [0, 1, 2]}


def test_a_row_with_one_old_token_is_old_and_a_row_without_loss_is_none(tmp_path):
    batch = _batch(0, version=5)
    versions, mask = batch.weight_versions.copy(), batch.loss_mask.copy()
    versions[2] = 3
    mask[6:12] = 0
    with Run.create(tmp_path, campaign="c", run_name="r", config={}, provenance={}) as writer:
        writer.record_tokens(replace(batch, weight_versions=versions, loss_mask=mask), per_token={})
    young, every = (stored_batches(Run.open(writer.path), max_age=age)[0] for age in (1, 2))
    assert young.rollout_ids == batch.rollout_ids[2:]
    assert every.rollout_ids == (batch.rollout_ids[0], *batch.rollout_ids[2:])
    assert np.array_equal(young.tokens, batch.tokens[12:]) and np.array_equal(
        young.rewards, batch.rewards[2:]
    )


def test_rows_taken_out_of_a_batch_keep_their_groups():
    batch = replace(_batch(0, version=0), groups=np.array([4, 4, 9, 9, 2, 2, 5, 5], np.int32))
    assert batch.take_rows([1, 2, 7]).groups.tolist() == [4, 9, 5]


@pytest.mark.parametrize("override", ["train.load=there", "train.advantage=grpo"])
def test_settings_that_leave_nothing_to_pretrain_are_refused(run, tmp_path, override):
    groups = ["rollout.samples_per_task=2", "rollout.over_sampling_batch_size=4"]
    config = load_config("smoke", [override, "train.num_critic_only_steps=0", *groups])
    with pytest.raises(ValueError, match=override.split("=")[0]):
        pretrain_critic(config, [run], output=tmp_path / "critic")


def test_chunks_of_a_trial_are_held_out_together():
    batch = _batch(0, version=0)
    batch = replace(batch, rollout_ids=tuple(f"trial-{row // 2}" for row in range(8)))
    learnt, judged = split_by_trial([batch], heldout_frac=0.5, seed=0)
    assert len(learnt[0]) == len(judged[0]) == 4
    assert not set(learnt[0].rollout_ids) & set(judged[0].rollout_ids)


def test_a_critic_learns_from_stored_trajectories_alone(run, tmp_path):
    actor, output = tmp_path / "actor", tmp_path / "critic"
    init_hf(SHAPE, actor, seed=0)
    config = load_config(
        "smoke",
        ["train.critic_head=hl_gauss", "train.critic={lr=3e-3, weight_decay=0.0}", "train.critic_steps=4"],
    )
    said = []
    pretrain_critic(config, [run], output=output, actor=actor, epochs=3, heldout_frac=0.25, say=said.append)
    explained = [float(line.split("EV ")[1].split()[0]) for line in said[:-1]]
    assert len(explained) == 4 and explained[-1] > 0.5 > explained[0]
    assert sorted(path.name for path in output.iterdir()) == [
        "config.json",
        "model.safetensors",
        "value_bins.json",
    ]
    with pytest.raises(ValueError, match="hl_gauss head of 62 bins"):
        pretrain_critic(
            load_config("smoke", [f"model.critic_path={output}"]),
            [run], output=tmp_path / "other", actor=actor, say=said.append,
        )  # fmt: skip


def test_an_output_that_is_or_holds_an_actor_is_refused_before_anything_loads(run, tmp_path):
    actor = tmp_path / "actor"
    init_hf(SHAPE, actor, seed=0)
    (tmp_path / "link").symlink_to(actor)
    for output in (f"{actor}/", tmp_path / "link"):
        with pytest.raises(ValueError, match="directory of its own"):
            pretrain_critic(load_config("smoke"), [run], output=output, actor=actor)
    init_hf(SHAPE, tmp_path / "second", seed=1)
    with pytest.raises(ValueError, match="holds an actor's weights"):
        pretrain_critic(load_config("smoke"), [run], output=tmp_path / "second", actor=actor)


def test_a_run_without_young_rows_is_refused(run, tmp_path):
    init_hf(SHAPE, tmp_path / "actor", seed=0)
    with pytest.raises(ValueError, match="raise max_age"):
        pretrain_critic(
            load_config("smoke"), [run], output=tmp_path / "critic", actor=tmp_path / "actor", max_age=-1
        )
