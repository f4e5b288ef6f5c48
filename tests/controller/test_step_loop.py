"""The real loop with the real store, driven by a crew that only notes what it was asked."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from recording_crew import Pool, RecordingCrew, made_up_trial

from t1core.cluster.crew import Publication
from t1core.config import load_config
from t1core.controller import Campaign, run_loop
from t1core.controller.rewarding import source_line, training_rewards
from t1core.records import (
    RewardSource,
)
from t1core.store import Run
from t1core.store.token_file import read_batch
from t1core.train.result import TrainResult


def run(tmp_path, crew, *overrides):
    config = load_config("smoke", ["num_steps=6", *overrides])
    with Run.create(tmp_path, campaign="c", run_name="r", config={}, provenance={}, num_steps=6) as store:
        said = []
        campaign = Campaign(
            config=config, crew=crew, run=store, pool=Pool(), say=said.append, is_evaluated=False
        )
        asyncio.run(run_loop(campaign))
    return Run.open(tmp_path / "c" / "r"), said


@pytest.mark.parametrize("critic_only", [0, 2])
def test_each_batch_is_trained_one_version_after_its_sampler_and_published_after_each_actor_step(
    tmp_path, critic_only
):
    crew = RecordingCrew()
    stored, said = run(tmp_path, crew, f"train.num_critic_only_steps={critic_only}")
    first = critic_only + 1
    assert crew.published == list(range(6 - critic_only + 1))
    assert [step for step, *_ in crew.trained] == list(range(6))
    for step, sampled_by, held, update_actor, lag in crew.trained:
        assert update_actor == (step >= critic_only)
        assert held - sampled_by.pop() == lag == (1 if step >= first else 0)
    metrics = stored.metrics("train")
    assert metrics.index.tolist() == list(range(6)) and len(said) == 6
    assert (metrics["tito/drift_frac"] == 0).all() and stored.token_steps() == list(range(6))


def test_without_a_pipeline_each_batch_is_trained_by_the_weights_that_sampled_it(tmp_path):
    crew = RecordingCrew()
    stored, _ = run(
        tmp_path,
        crew,
        *("rollout.mode=sync", "train.num_critic_only_steps=1", "checkpoint_every=3"),
    )
    assert crew.published == [0, 1, 2, 3, 4, 5]
    assert [(step, *sampled, held, lag) for step, sampled, held, _, lag in crew.trained] == [
        (0, 0, 0, 0), (1, 0, 0, 0), (2, 1, 1, 0), (3, 2, 2, 0), (4, 3, 3, 0), (5, 4, 4, 0),
    ]  # fmt: skip
    assert (stored.metrics("train")["staleness/updates"] == 0).all()
    assert [name for name, _ in crew.saved] == ["step_0003", "step_0006"]


def test_publishing_every_third_update_makes_batches_one_to_three_updates_old(tmp_path):
    crew = RecordingCrew()
    stored, _ = run(
        tmp_path,
        crew,
        *("num_steps=9", "rollout.publish_every=3", "train.num_critic_only_steps=1"),
    )
    assert crew.published == [0, 3, 6, 8], "what was left out in the end is published for the evaluation"
    # versions that sampled a batch, that the engine held as it was trained, and the trainer's expected distance
    assert [(step, *sampled, held, lag) for step, sampled, held, _, lag in crew.trained] == [
        (0, 0, 0, 0), (1, 0, 0, 0), (2, 0, 0, 0), (3, 0, 0, 0), (4, 0, 3, 3),
        (5, 3, 3, 0), (6, 3, 3, 0), (7, 3, 6, 3), (8, 6, 6, 0),
    ]  # fmt: skip
    assert stored.metrics("train")["staleness/updates"].tolist() == [0, 0, 1, 2, 3, 1, 2, 3, 1]


def test_failed_trials_are_counted_and_left_out_of_the_batch(tmp_path):
    crew = RecordingCrew(broken=lambda spec: spec.trial_id.endswith("-000"))
    stored, _ = run(tmp_path, crew)
    metrics = stored.metrics("train")
    assert (metrics["rollout/failed"] == 1).all() and (metrics["rollout/accepted"] == 4).all()
    assert set(stored.trials().outcome) == {"failed", "accepted"}


def test_a_step_with_too_few_usable_trials_stops_the_campaign_and_keeps_what_it_saw(tmp_path):
    crew = RecordingCrew(broken=lambda spec: spec.step == 3 and not spec.trial_id.endswith("-004"))
    with pytest.raises(BaseExceptionGroup) as stopped:
        run(tmp_path, crew, "rollout.max_retries=0")
    assert "1 of 5 trials are usable" in str(stopped.value.exceptions[0])
    stored = Run.open(tmp_path / "c" / "r")
    assert stored.status().state == "failed"
    assert (stored.trials().query("step == 3").outcome == "failed").sum() == 4


def test_an_engine_that_still_holds_old_weights_is_caught(tmp_path):
    class Stale(RecordingCrew):
        async def publish(self, version, *, mode="abort"):
            self.published.append(version)
            self.version = min(version, 1)
            return Publication(0.0, 0.0, 0.0)

    with pytest.raises(BaseExceptionGroup) as stopped:
        run(tmp_path, Stale(), "train.num_critic_only_steps=0")
    assert "weight versions [1], the engine held 2" in str(stopped.value.exceptions[0])


def test_the_first_rollout_after_loading_is_sampled_by_the_restored_weights(tmp_path):
    crew = RecordingCrew()
    run(tmp_path, crew, f"train.load={tmp_path}/step_0041", "train.num_critic_only_steps=1")
    assert [path.name for path in crew.loaded] == ["step_0041"]
    assert crew.published == [41, 42, 43, 44, 45, 46]
    assert [sampled_by for _, sampled_by, *_ in crew.trained] == [{41}, {41}, {41}, {42}, {43}, {44}]


def test_checkpoints_are_written_as_configured_and_old_ones_removed(tmp_path):
    crew = RecordingCrew()
    stored, _ = run(tmp_path, crew, "checkpoint_every=2", "checkpoint_keep=2", "checkpoint_content=weights")
    assert crew.saved == [(f"step_{step:04d}", "weights") for step in (2, 4, 6)]
    left = {path.name for path in stored.folder("checkpoints").iterdir()}
    assert left == {"step_0004", "step_0006", "final"}, "weights alone are nothing to resume from"


def test_the_trainers_phases_are_metrics_of_the_step(tmp_path):
    stored, _ = run(tmp_path, RecordingCrew())
    metrics = stored.metrics("train")
    assert (metrics["time/critic_s"] == 1.5).all() and (metrics["time/actor_s"] == 2.5).all()


def test_groups_reach_the_batch_and_their_metrics_are_recorded(tmp_path):
    class WithoutCritic(RecordingCrew):
        groups: list

        async def train(self, batch, **options):
            self.groups.append(batch.groups.tolist())
            result = await super().train(batch, **options)
            skipped = {"train/skipped": 0.0, "actor/skipped": 1.0}
            return replace(result, metrics={"logprob_gap/abs_mean": 0.0} | skipped)

    crew = WithoutCritic()
    crew.groups = []
    stored, said = run(
        tmp_path,
        crew,
        *("train.advantage=grpo", "train.num_critic_only_steps=0", "rollout.samples_per_task=2"),
        *("rollout.over_sampling_batch_size=6", "rollout.max_live_trials=6"),
    )
    assert all(sorted(groups)[::2] == sorted(groups)[1::2] and len(groups) == 4 for groups in crew.groups)
    metrics = stored.metrics("train")
    assert (metrics["rollout/groups"] == 2).all() and (metrics["reward/zero_variance_group_frac"] == 1).all()
    assert (metrics["rollout/distinct_tasks"] == 1).all(), "the pool of this test has one task"
    assert metrics["rollout/group_idle_frac"].between(0, 1).all()
    assert "flat groups 100%  no actor step: every group is flat" in said[0] and "EV" not in said[0]
    assert {path.name for path in (stored.folder("checkpoints") / "final").iterdir()} == {"actor"}
    batch, _ = read_batch(tmp_path / "c" / "r" / "tokens" / "step_0000.safetensors")
    assert batch.groups.tolist() == crew.groups[0]


def test_a_group_is_flat_where_the_rewards_that_are_trained_on_are(tmp_path):
    class OneLong(RecordingCrew):
        async def launch(self, spec):
            item = await super().launch(spec)
            if not spec.trial_id.endswith("-000"):
                return item
            return replace(item, trajectory=replace(item.trajectory, turns=item.trajectory.turns * 50))

    stored, _ = run(
        tmp_path,
        OneLong(),
        *("train.advantage=grpo", "train.num_critic_only_steps=0", "rollout.samples_per_task=2"),
        *("rollout.over_sampling_batch_size=4", "rollout.max_live_trials=4", "reward.shaping=additive"),
    )
    assert (stored.metrics("train")["reward/zero_variance_group_frac"] == 0.5).all()


def test_a_step_without_a_trainable_token_says_so(tmp_path):
    class Masked(RecordingCrew):
        async def train(self, batch, **options):
            result = await super().train(batch, **options)
            return TrainResult({"train/skipped": 1.0}, result.per_token, {}, 0.0)

    stored, said = run(tmp_path, Masked())
    assert [line for line in said if "no optimiser step" in line] == said
    assert (stored.metrics("train")["train/skipped"] == 1).all()


def test_the_shaped_reward_is_trained_on_and_the_plain_one_is_recorded(tmp_path):
    seen = []

    class Looking(RecordingCrew):
        async def train(self, batch, **options):
            seen.append(batch.rewards.tolist())
            return await super().train(batch, **options)

    stored, _ = run(tmp_path, Looking(), "reward.scale_by_batch_max=true")
    assert seen == [[1.0] * 4] * 6
    metrics = stored.metrics("train")
    assert (metrics["reward/mean"] == 0.05).all() and (metrics["reward/trained_mean"] == 1.0).all()
    assert (metrics["reward/source_frac/ctrf"] == 1.0).all()


def test_the_log_says_where_a_reward_without_a_report_scores_less_than_in_t1():
    assert source_line([RewardSource.CTRF] * 3) is None
    line = source_line([RewardSource.CTRF] * 3 + [RewardSource.NO_REPORT])
    assert "ctrf 3 (75%), no_report 1 (25%)" in line and "scores 0 here, where T1" in line
    assert "T1" not in source_line([RewardSource.BINARY])


@pytest.mark.parametrize(
    ("overrides", "reward"),
    [
        (["reward.shaping=none"], 0.05),
        (["reward.shaping=multiplicative"], 0.05 * 0.75),
        (["reward.shaping=multiplicative", "reward.discount_per_turn=0.015"], 0.05 * 0.625),
        (["reward.shaping=multiplicative", "reward.healthy_turns=40"], 0.05 * 0.9),
        (["reward.shaping=additive"], 0.05 - 0.04),
        (["reward.shaping=additive", "reward.penalty_tests=0.5"], 0.05 - 0.025),
    ],
)
def test_a_trial_of_fifty_turns_is_worth_what_the_settings_say(overrides, reward):
    item = made_up_trial(SimpleNamespace(trial_id="t", step=0), version=0)
    long = replace(item, trajectory=replace(item.trajectory, turns=item.trajectory.turns * 50))
    assert training_rewards([long], load_config("smoke", overrides).reward) == [pytest.approx(reward)]
