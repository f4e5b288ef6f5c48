"""What a campaign's [train] section says reaches the trainer: no setting is dropped on the way."""

from dataclasses import fields

from ppo_scenario import SHAPE

from t1core.cluster.training import train_settings
from t1core.config import TrainSettings as CampaignTrainSettings
from t1core.config import load_config
from t1core.config.off_policy import OffPolicySettings
from t1core.train.settings import TrainSettings

# Not by its name: built of several, or the campaign's own business.
OTHERWISE = {
    *(
        "actor",
        "critic",
        "critic_head",
        "value_bins",
        "value_min",
        "value_max",
        "load",
        "num_critic_only_steps",
    ),
    *(
        "tensor_parallel",
        "pipeline_parallel",
        "context_parallel",
        "expert_parallel",
        "data_parallel",
        "gdn_cp",
    ),
    *("advantage", "grpo_std_normalization"),
}
WORDS = {
    "chunk_reward": "once",
    "loss_aggregation": "token_mean",
    "precision": "bf16",
    "kernels": "plain",
    "actor_frozen": ("embed_tokens",),
    "critic_frozen": ("value_head",),
    "off_policy": OffPolicySettings(importance="tis"),
}


def other(name, default):
    """A value that the setting does not have by itself."""
    if name in WORDS:
        return WORDS[name]
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    return default / 2 if default else 0.5


def test_every_setting_of_the_learner_reaches_the_trainer(actor_path):
    names = set(CampaignTrainSettings.model_fields) - OTHERWISE
    assert names <= {field.name for field in fields(TrainSettings)}
    default = CampaignTrainSettings()
    changed = {name: other(name, getattr(default, name)) for name in names}
    config = load_config("smoke")
    config = config.model_copy(update={"train": default.model_copy(update=changed)})
    made = train_settings(config, actor_path=actor_path, critic_path=None)
    assert {name: getattr(made, name) for name in names} == changed


def test_what_is_built_of_several_settings_is_built_of_all_of_them(actor_path):
    config = load_config(
        "smoke",
        [
            "seed=7",
            "train.critic_head=hl_gauss",
            "train.value_bins=31",
            "train.value_min=-0.2",
            "train.value_max=2.9",
            "train.actor={lr=1e-3, lr_decay_style='linear', lr_warmup_steps=2, lr_decay_steps=9, min_lr=1e-4, "
            "adam_beta1=0.8, adam_beta2=0.7, weight_decay=0.3, clip_grad=2.0}",
            "train.tensor_parallel=2",
            "train.pipeline_parallel=4",
            "train.context_parallel=8",
            "train.expert_parallel=16",
            "train.gdn_cp=state_scan",
        ],
    )
    made = train_settings(config, actor_path=actor_path, critic_path=None)
    assert (made.seed, made.shape) == (7, SHAPE)
    assert (made.value_bins.num, made.value_bins.low, made.value_bins.high) == (31, -0.2, 2.9)
    rate = made.actor.lr
    assert (rate.peak, rate.style, rate.warmup_steps, rate.decay_steps, rate.floor) == (
        1e-3,
        "linear",
        2,
        9,
        1e-4,
    )
    assert (made.actor.betas, made.actor.weight_decay, made.actor.clip_grad) == ((0.8, 0.7), 0.3, 2.0)
    assert (made.layout.tp, made.layout.pp, made.layout.cp, made.layout.ep) == (2, 4, 8, 16)
    assert made.layout.gdn_cp == "state_scan"
    grpo = ["train.advantage=grpo", "train.grpo_std_normalization=false", "train.num_critic_only_steps=0"]
    sampled = ["rollout.samples_per_task=2", "rollout.over_sampling_batch_size=6"]
    alone = train_settings(load_config("smoke", grpo + sampled), actor_path=actor_path, critic_path=None)
    assert (alone.advantage, alone.grpo_std_normalization) == ("grpo", False)
