"""Training without a critic: advantages from the other samples of a task."""

from dataclasses import replace

import numpy as np
import pytest
from ppo_scenario import make_batch, settings, trainer

from t1core.config.off_policy import OffPolicySettings
from t1core.metrics import check_names

STEP = dict(update_actor=True, expected_version_lag=0)


def grouped(rewards, groups):
    return replace(
        make_batch(num_rows=len(rewards), rewards=rewards), groups=np.array(groups, dtype=np.int32)
    )


def test_a_step_uses_the_advantages_of_the_groups_and_no_critic(actor_path, tmp_path):
    batch = grouped([0, 1, 2, 5, 5, 5], [7, 7, 7, 2, 2, 2])
    with trainer(actor_path, advantage="grpo") as made:
        before = made.checksum()
        result = made.train_batch(batch, **STEP)
        assert made.checksum() != before
        assert tuple(made.learners) == ("actor",)
        with pytest.raises(ValueError, match="there is no critic"):
            made.save_weights(tmp_path / "critic", "critic")
        made.save_checkpoint(tmp_path / "checkpoint")
        saved = made.checksum()
    check_names(result.metrics)
    assert not [name for name in result.metrics if name.startswith("critic/")]
    row = np.repeat(np.arange(len(batch)), batch.lengths())
    expected = np.array([-1, 0, 1, 0, 0, 0])[row] * batch.loss_mask
    assert result.per_token["advantages"] == pytest.approx(expected, abs=2e-6)
    assert set(result.per_token) == {"advantages", "trainer_logprobs"}
    with trainer(actor_path, advantage="grpo") as made:
        made.load_checkpoint(tmp_path / "checkpoint")
        assert made.checksum() == saved
    with trainer(actor_path) as made, pytest.raises(ValueError, match="holds no critic"):
        made.load_checkpoint(tmp_path / "checkpoint")


def test_corrections_and_the_kl_loss_do_not_need_a_critic(actor_path, tmp_path):
    fields = dict(
        advantage="grpo",
        kl_loss_coef=0.1,
        use_rollout_routing_replay=False,
        off_policy=OffPolicySettings(importance="icepop"),
    )
    batch = grouped([0, 1, 2, 5, 5, 5], [7, 7, 7, 2, 2, 2])
    with trainer(actor_path, **fields) as made:
        made.train_batch(batch, **STEP)
        for version in (1, 2, 3):
            made.rotate(version)
        result = made.train_batch(replace(batch, weight_versions=batch.weight_versions * 0 + 3), **STEP)
        assert made.snapshots.versions == (0, 2, 3)
        made.save_checkpoint(tmp_path / "checkpoint")
    check_names(result.metrics)
    assert result.metrics["actor/grad_norm"] > 0
    assert {"off_policy/icepop_drop_frac", "logprob_gap_part/policy_move/mean"} <= set(result.metrics)
    with trainer(actor_path, **fields) as made:
        made.load_checkpoint(tmp_path / "checkpoint")
        assert made.snapshots.versions == (0, 2, 3)


def test_a_batch_of_flat_groups_leaves_every_bit_alone_and_says_so(actor_path):
    flat = grouped([0.1, 0.1, 0.1, 2, 2, 2], [0, 0, 0, 1, 1, 1])
    with trainer(actor_path, advantage="grpo") as made:
        told = made.train_batch(grouped([0, 1, 2, 5, 5, 5], [0, 0, 0, 1, 1, 1]), **STEP)
        made.rotate(1)
        # Adam has moments now, and a weight decay: a step without a gradient would still move the weights.
        before, lagging = made.checksum(), dict(update_actor=True, expected_version_lag=1)
        result = made.train_batch(flat, **lagging)
        assert made.checksum() == before and made.actor.num_steps == 1
        made.rotate(2)
        assert made.is_published and made.version == 2
    check_names(result.metrics)
    assert (told.metrics["actor/skipped"], result.metrics["actor/skipped"]) == (0, 1)
    assert "actor/grad_norm" not in result.metrics
    assert not result.per_token["advantages"].any()
    assert np.isfinite(result.metrics["logprob_gap/abs_mean"]), "the gap is measured all the same"


def test_a_batch_that_does_not_tell_its_groups_is_refused(actor_path):
    with trainer(actor_path, advantage="grpo") as made:
        with pytest.raises(ValueError, match=r"rollout\.samples_per_task"):
            made.train_batch(make_batch(), **STEP)


@pytest.mark.parametrize("field", [{"critic_path": "elsewhere"}, {"offload": True}])
def test_what_only_a_critic_needs_is_refused_without_one(actor_path, field):
    with pytest.raises(ValueError, match="critic"):
        settings(actor_path, advantage="grpo", **field)
