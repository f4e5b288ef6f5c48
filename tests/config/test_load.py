import json

import pytest

from t1core.config import CampaignConfig, list_presets, load_config
from t1core.config.load import known_keys, resolve, to_json


@pytest.mark.parametrize("preset", list_presets())
def test_every_preset_loads(preset):
    assert isinstance(load_config(preset), CampaignConfig)


def test_later_wins_defaults_preset_overrides_fields():
    assert CampaignConfig().num_steps != load_config("quickstart", ["num_steps=7"]).num_steps == 7
    assert load_config("quickstart", ["seed=1"], seed=2).seed == 2


def test_an_override_is_read_as_toml_and_as_text_where_it_is_none():
    config = load_config("smoke", ["train.actor.lr=1e-6", "reward.kind=binary", "tasks.shuffle=false"])
    assert config.train.actor.lr == 1e-6
    assert config.reward.kind == "binary"
    assert config.tasks.shuffle is False


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.eps_clipp=0.1", ["train.eps_clipp", "unknown key", "did you mean train.eps_clip?"]),
        ("trian.eps_clip=0.1", ["trian", "unknown key"]),
        ("train.actor.lr=fast", ["train.actor.lr", "'fast'", "number"]),
        ("rollout.rollout_batch_size=0", ["rollout.rollout_batch_size", "0"]),
        ("rollout.rollout_batch_size=99", ["over_sampling_batch_size", "99"]),
        ("rollout.temperature=0.7", ["temperature 1", "trainer scores"]),
        ("agent.context_tokens=200", ["context_tokens=200", "max_new_tokens"]),
        ("agent.summarize_above_tokens=500", ["summarize_above_tokens=500", "no effect", "summary_tokens=0"]),
        ("agent.protocol=xml", ["agent.protocol=xml", "demonstrations"]),
        # 44 trials at 40 a second, 120 s to open, 900 and 300 s: 1.1 + 1320
        ("agent.agent_timeout_s=900", ["trial_deadline_s=600", "1.1", "900", "= 1321.1 s", "1322 or more"]),
        ("rollout.trial_deadline_s=481", ["trial_deadline_s=481", "= 481.1 s", "482 or more"]),
        ("cluster.num_hosts=200", ["8800 trials at", "220", "= 700 s", "700 or more"]),
        ("train.num_critic_only_steps=100", ["num_critic_only_steps=100", "num_steps"]),
        ("name=../x", ["name", "'../x'"]),
        ("seed", ["'seed'", "section.key=value"]),
        ("seed.x=1", ["seed"]),
    ],
)
def test_a_wrong_setting_is_refused_by_name_value_and_way_out(override, words):
    with pytest.raises(ValueError) as refusal:
        load_config("quickstart", [override])
    for word in words:
        assert word in str(refusal.value)


GRPO = ("train.advantage=grpo", "train.num_critic_only_steps=0", "rollout.samples_per_task=4")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["rollout.samples_per_task=3"], ["rollout_batch_size=40", "samples_per_task=3"]),
        (GRPO[:2], ["samples_per_task=1", "2 or more"]),
        (GRPO[::2], ["num_critic_only_steps=2", "no critic"]),
        ([*GRPO, "train.lambd=0.95"], ["lambd=0.95", "no effect"]),
        ([*GRPO, "train.gamma=0.9"], ["gamma=0.9", "no effect"]),
        ([*GRPO, "train.critic_steps=4"], ["critic_steps=4", "no effect"]),
        ([*GRPO, "train.value_clip=0.5"], ["value_clip=0.5", "no effect"]),
        ([*GRPO, "train.critic_lambd=0.9"], ["critic_lambd=0.9", "no effect"]),
        ([*GRPO, "train.lambd_alpha=0.05"], ["lambd_alpha=0.05", "no effect"]),
        ([*GRPO, "train.normalize_advantages=true"], ["normalize_advantages=True", "no effect"]),
        ([*GRPO, "train.chunk_reward=once"], ["chunk_reward=once", "no effect"]),
        ([*GRPO, "train.critic_head=hl_gauss"], ["critic_head=hl_gauss", "no effect"]),
        ([*GRPO, 'train.critic_frozen=["embed"]'], ["critic_frozen=", "no effect"]),
        ([*GRPO, "reward.scale_by_batch_max=true"], ["scale_by_batch_max=true", "no effect"]),
        ([*GRPO, "train.offload=true"], ["offload=true", "no critic"]),
        ([*GRPO, "model.critic_path=there"], ["model.critic_path='there'", "no critic"]),
        (["train.grpo_std_normalization=false"], ["grpo_std_normalization=false", "no effect"]),
        (["train.load=a", "model.critic_path=b"], ["train.load='a'", "model.critic_path='b'"]),
        (["checkpoint_keep=2"], ["checkpoint_keep=2", "checkpoint_every=0"]),
        (["checkpoint_content=weights"], ["checkpoint_content=weights", "checkpoint_every=0"]),
    ],
)
def test_settings_that_make_no_sense_together_are_refused(overrides, words):
    plain = ["train.critic_steps=1"]  # the preset takes several
    with pytest.raises(ValueError) as refusal:
        load_config("quickstart", [*plain, *overrides])
    for word in words:
        assert word in str(refusal.value)
    load_config("quickstart", [*plain, *GRPO])


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(ValueError, match="quickstart"):
        load_config("quikstart")
    with pytest.raises(ValueError, match="no such file"):
        load_config("missing.toml")


def test_the_resolved_json_resolves_to_the_same_configuration():
    config = load_config("quickstart", ["train.actor.lr=3e-5"])
    assert resolve(json.loads(to_json(config)), origin="json") == config


def test_every_field_says_what_it_means():
    def undocumented(model, prefix=""):
        for name, field in model.model_fields.items():
            if hasattr(field.annotation, "model_fields"):
                yield from undocumented(field.annotation, f"{prefix}{name}.")
            elif not field.description:
                yield prefix + name

    assert list(undocumented(CampaignConfig)) == []
    assert "train.actor.lr" in known_keys()
