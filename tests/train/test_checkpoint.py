"""Checkpoints and weights-only directories: exact, whole, and never the other role's."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from ppo_scenario import SHAPE, adam, make_batch, pipelined_steps, settings, trainer

from t1core.model.checkpoint import init_hf
from t1core.rl import ValueBins
from t1core.train.adam import Adam
from t1core.train.directories import written_whole
from t1core.train.learning_rate import LearningRate
from t1core.train.offload import _optimised


def _step(made, i):
    return pipelined_steps(made, first=i, count=1)[0]


def _state(made):
    return made.checksum(), made.checksum("critic")


def test_a_loaded_checkpoint_goes_on_bit_for_bit(actor_path, tmp_path):
    with trainer(actor_path, actor=adam(1e-3, eps=1e-8), critic=adam(1e-3, eps=1e-8)) as made:
        for i in (0, 1):
            _step(made, i)
        made.save_checkpoint(tmp_path / "step_2")
        saved = _state(made)
        expected = [_step(made, i) for i in (2, 3)]
        final = _state(made)
    with trainer(actor_path, actor=adam(1e-3, eps=1e-8), critic=adam(1e-3, eps=1e-8)) as made:
        made.load_checkpoint(tmp_path / "step_2")
        assert made.snapshots.versions == (1, 2)
        assert _state(made) == saved
        got = [_step(made, i) for i in (2, 3)]
        assert _state(made) == final
    for a, b in zip(got, expected, strict=True):
        assert a.metrics == pytest.approx(b.metrics, rel=0, abs=0, nan_ok=True)
        for name, stream in b.per_token.items():
            assert np.array_equal(a.per_token[name], stream), name


def test_a_checkpoint_that_does_not_fit_the_settings_is_refused_before_anything_changes(actor_path, tmp_path):
    bins = ValueBins(num=8, low=0.0, high=3.0)
    with trainer(actor_path, value_bins=bins) as made:
        _step(made, 0)
        made.save_checkpoint(tmp_path / "histogram")
        saved = _state(made)
    with trainer(actor_path, value_bins=bins) as made:
        made.load_checkpoint(tmp_path / "histogram")
        assert _state(made) == saved
    with trainer(actor_path, value_bins=ValueBins(num=8, low=0.0, high=2.0)) as made:
        before = _state(made), made.snapshots.versions
        with pytest.raises(ValueError, match=r"from 0\.0 to 3\.0 and the settings ask for"):
            made.load_checkpoint(tmp_path / "histogram")
        assert (_state(made), made.snapshots.versions) == before
    near_start = dict(kl_loss_coef=0.1, use_rollout_routing_replay=False, value_bins=bins)
    with trainer(actor_path, **near_start) as made:
        made.load_checkpoint(tmp_path / "histogram")
        _step(made, 1)
        _step(made, 2)
        made.save_checkpoint(tmp_path / "with_start")
        assert made.snapshots.versions == (0, 2, 3)
    with trainer(actor_path, value_bins=bins) as made:
        made.load_checkpoint(tmp_path / "with_start")
        made.save_checkpoint(tmp_path / "without_start")
    with trainer(actor_path, **near_start) as made:
        made.load_checkpoint(tmp_path / "with_start")
        with pytest.raises(ValueError, match="does not hold the starting policy"):
            made.load_checkpoint(tmp_path / "without_start")


def test_a_checkpoint_of_other_frozen_parts_another_precision_or_another_network_is_refused_by_name(
    actor_path, tmp_path
):
    with trainer(actor_path, critic_frozen=("embed_tokens",)) as made:
        _step(made, 0)
        made.save_checkpoint(tmp_path / "one")
        saved = _state(made)
    with trainer(actor_path, critic_frozen=(r"^model\.embed_tokens\.weight$",)) as made:
        made.load_checkpoint(tmp_path / "one")
        assert _state(made) == saved, "the same parts by another pattern"
    init_hf(replace(SHAPE, num_layers=8), tmp_path / "deeper", seed=0)
    for overrides, told in (
        ({}, r"critic_frozen=\[\] is not \['embed_tokens'\]"),
        (
            dict(critic_frozen=("embed_tokens",), actor_frozen=("lm_head",)),
            r"actor_frozen=\['lm_head'\] is not",
        ),
        (dict(critic_frozen=("embed_tokens",), precision="bf16"), "precision='fp32', and the settings"),
        (dict(actor_path=tmp_path / "deeper", shape=replace(SHAPE, num_layers=8)), "num_layers=4, and"),
    ):
        with trainer(**(dict(actor_path=actor_path) | overrides)) as made:
            before = _state(made), made.snapshots.versions
            with pytest.raises(ValueError, match=told):
                made.load_checkpoint(tmp_path / "one")
            assert (_state(made), made.snapshots.versions) == before


def test_moments_are_restored_and_adams_settings_are_those_of_the_run_that_goes_on(actor_path, tmp_path):
    with trainer(actor_path, actor=adam(1e-3), critic=adam(1e-3)) as made:
        _step(made, 0)
        made.save_checkpoint(tmp_path / "one")
        saved = [state["exp_avg"].clone() for _, state in _optimised(made.actor)]
    now = Adam(LearningRate(5e-4, warmup_steps=3), betas=(0.8, 0.7), eps=1e-3, weight_decay=0.03)
    with trainer(actor_path, actor=now, critic=now) as made:
        made.load_checkpoint(tmp_path / "one")
        for learner in (made.actor, made.critic):
            assert learner.num_steps == 1
            for group in learner.optimizer.param_groups:
                assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.8, 0.7), 1e-3, 0.03)
        for moment, (_, state) in zip(saved, _optimised(made.actor), strict=True):
            assert moment.abs().max() > 0 and torch.equal(state["exp_avg"], moment) and state["step"] == 1
        assert _step(made, 1).metrics["actor/lr"] == pytest.approx(5e-4 * 2 / 3), "the second of three"
    # Weights alone: the optimiser starts anew.
    hf = tmp_path / "one" / "hf"
    with trainer(hf / "actor", critic_path=str(hf / "critic")) as made:
        assert made.actor.num_steps == made.critic.num_steps == 0
        assert not any(state for learner in (made.actor, made.critic) for _, state in _optimised(learner))


def test_loading_into_a_trainer_that_has_already_stepped_forgets_those_steps(actor_path, tmp_path):
    with trainer(actor_path, actor=adam(1e-3, eps=1e-8), critic=adam(1e-3, eps=1e-8)) as made:
        _step(made, 0)
        made.save_checkpoint(tmp_path / "one")
        _step(made, 1)
        final = _state(made)
        made.load_checkpoint(tmp_path / "one")
        _step(made, 1)
        assert _state(made) == final


def test_a_save_that_fails_halfway_leaves_the_checkpoint_that_was_there(actor_path, tmp_path):
    with trainer(actor_path) as made:
        made.save_checkpoint(tmp_path / "latest")
        saved = _state(made)
        with pytest.raises(OSError, match="disk"), written_whole(tmp_path / "latest") as scratch:
            (scratch / "half").write_text("half")
            raise OSError("disk full")
        assert os.listdir(tmp_path) == ["latest"]
        made.train_batch(make_batch(), update_actor=True, expected_version_lag=0)
        made.load_checkpoint(tmp_path / "latest")
        assert _state(made) == saved


def test_saving_again_replaces_the_older_checkpoint(actor_path, tmp_path):
    with trainer(actor_path) as made:
        made.save_checkpoint(tmp_path / "latest")
        _step(made, 0)
        made.save_checkpoint(tmp_path / "latest")
        saved = _state(made)
    with trainer(actor_path) as made:
        made.load_checkpoint(tmp_path / "latest")
        assert _state(made) == saved
    assert os.listdir(tmp_path) == ["latest"]


def test_a_checkpoint_holds_weights_that_start_a_run_of_their_own(tmp_path, actor_path):
    policy = tmp_path / "policy"
    shutil.copytree(actor_path, policy)
    (policy / "tokenizer.json").write_text("{}")
    (policy / "notes.txt").write_text("mine")
    with trainer(policy) as made:
        _step(made, 0)
        made.save_checkpoint(tmp_path / "whole")
        made.save_checkpoint(tmp_path / "weights", content="weights")
        saved = _state(made)
    for name in ("whole", "weights"):
        exports = tmp_path / name / "hf"
        assert sorted(os.listdir(exports / "actor")) == ["config.json", "model.safetensors", "tokenizer.json"]
        with trainer(exports / "actor", critic_path=str(exports / "critic")) as made:
            assert _state(made) == saved
    assert sorted(os.listdir(tmp_path / "weights")) == ["checkpoint.json", "hf"]
    with trainer(policy) as made, pytest.raises(ValueError, match="holds weights only"):
        made.load_checkpoint(tmp_path / "weights")


def test_a_cut_file_is_refused_by_name(actor_path, tmp_path):
    with trainer(actor_path) as made:
        made.save_checkpoint(tmp_path / "one")
        data = next((tmp_path / "one" / "critic").glob("*.distcp"))
        data.write_bytes(data.read_bytes()[:-1])
        with pytest.raises(ValueError, match=rf"damaged: .*{data.name} should have"):
            made.load_checkpoint(tmp_path / "one")


def test_a_checkpoint_of_the_first_version_is_still_read(actor_path, tmp_path):
    with trainer(actor_path) as made:
        _step(made, 0)
        made.save_checkpoint(tmp_path / "old")
        saved = _state(made)
    # What version 1 wrote: the exact state, without exports and without a list of files.
    (tmp_path / "old" / "checkpoint.json").unlink()
    shutil.rmtree(tmp_path / "old" / "hf")
    with trainer(actor_path) as made:
        assert made.load_checkpoint(tmp_path / "old") == 1 and made.is_published
        assert _state(made) == saved


def test_a_trainer_says_when_its_restored_actor_is_ahead_of_what_was_published(actor_path, tmp_path):
    with trainer(actor_path) as made:
        made.train_batch(make_batch(), update_actor=True, expected_version_lag=0)
        made.save_checkpoint(tmp_path / "unpublished")
    with trainer(actor_path) as made:
        assert made.is_published
        assert made.load_checkpoint(tmp_path / "unpublished") == 0 and not made.is_published


def test_a_directory_without_a_checkpoint_is_refused(actor_path, tmp_path):
    with trainer(actor_path) as made, pytest.raises(ValueError, match=r"trainer\.json"):
        made.load_checkpoint(tmp_path)


def test_saved_weights_load_back_to_the_bit_and_the_critic_keeps_its_head(actor_path, tmp_path):
    with trainer(actor_path, critic=adam(1e-2)) as made:
        _step(made, 0)
        made.save_weights(tmp_path / "actor", "actor")
        made.save_weights(tmp_path / "critic", "critic")
        saved, exported = _state(made), made.export_actor()
        scored = made.train_batch(make_batch(version=1), update_actor=False, expected_version_lag=0)
    with trainer(tmp_path / "actor", critic_path=str(tmp_path / "critic")) as made:
        assert _state(made) == saved
        again = made.export_actor()
        assert all(np.array_equal(again[name], exported[name]) for name in exported)
        rescored = made.train_batch(make_batch(), update_actor=False, expected_version_lag=0)
    assert np.any(scored.per_token["values"] != 0)
    assert np.array_equal(rescored.per_token["values"], scored.per_token["values"])


def test_saving_weights_leaves_other_files_of_the_directory_alone(actor_path, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with trainer(actor_path) as made:
        made.save_weights(tmp_path, "actor")
        made.save_weights(tmp_path, "actor")
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_the_critic_is_never_written_over_the_actor_however_the_directory_is_spelt(actor_path, tmp_path):
    (tmp_path / "link").symlink_to(actor_path)
    spellings = [
        actor_path,
        actor_path + "/",
        f"{actor_path}/../{os.path.basename(actor_path)}",
        tmp_path / "link",
    ]
    with trainer(actor_path) as made:
        for spelling in spellings:
            with pytest.raises(ValueError, match="one would overwrite the other"):
                made.save_weights(spelling, "critic")
        for nothing in (None, "", " "):
            with pytest.raises(ValueError, match="a directory for weights is missing"):
                made.save_weights(nothing, "critic")
        made.save_weights(tmp_path / "new-actor", "actor")
        with pytest.raises(ValueError, match="holds the actor's weights"):
            made.save_weights(f"{tmp_path}/new-actor/", "critic")
        made.save_weights(tmp_path / "critic", "critic")
        with pytest.raises(ValueError, match="holds the critic's weights"):
            made.save_weights(tmp_path / "critic", "actor")


def test_settings_refuse_a_shared_or_headless_critic_before_anything_loads(actor_path, tmp_path):
    with pytest.raises(ValueError, match="one would overwrite the other"):
        settings(actor_path, critic_path=actor_path + "/")
    with pytest.raises(ValueError, match="no value head"):
        settings(actor_path, critic_path=str(tmp_path))
    with pytest.raises(ValueError, match="directory for weights is missing"):
        settings("")


@pytest.mark.parametrize(
    ("field", "value"),
    [("eps_clip", -0.1), ("lambd", 1.5), ("critic_steps", 0), ("precision", "fp16")],
)
def test_a_setting_out_of_range_is_refused_by_name(actor_path, field, value):
    with pytest.raises(ValueError, match=field):
        settings(actor_path, **{field: value})
