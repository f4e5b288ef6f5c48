"""Settings of the learner that would be silently wrong are refused by name, with the way out."""

import os

import pytest

from t1core.config import load_config


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["train.off_policy.ratio_denominator=current"], "identically one"),
        (
            ["train.off_policy.ratio_denominator=current", "train.off_policy.importance=tis"],
            "identically one",
        ),
        (["train.off_policy.ratio_denominator=current", "train.actor_steps=2"], "identically one"),
        (
            ["train.off_policy.ratio_denominator=rollout", "train.off_policy.importance=icepop"],
            "they are the same",
        ),
        (["train.off_policy.trust_region=sat_square"], "ratio_denominator='rollout'"),
        (
            [
                "train.off_policy.trust_region=sat_square",
                "train.off_policy.ratio_denominator=rollout",
                "train.off_policy.policy_loss=ipo",
            ],
            "has none",
        ),
        (["train.off_policy.mis_low=3.0"], "the band is empty"),
        (["train.kl_loss_coef=0.1"], "turn the replay off"),
        (["train.moe_aux_loss_coeff=0.1"], "turn the replay off"),
        (["train.regularize_under_replay=true"], "no effect without"),
        (
            [
                "train.regularize_under_replay=true",
                "train.kl_loss_coef=0.1",
                *("train.use_rollout_routing_replay=false", "train.measure_free_routing=false"),
            ],
            "no effect without",
        ),
        (["tasks.order=easiest_first"], "no effect with shuffle=true"),
        (["rollout.mode=sync", "rollout.tail=continue", "rollout.max_staleness=2"], "mode='sync'"),
        (["rollout.publish_every=2", "rollout.mode=sync"], "publish_every=2 with mode='sync'"),
        (
            ["rollout.publish_every=2", "rollout.tail=continue", "rollout.max_staleness=2"],
            "publish_every=2 with mode='one_step' and tail='continue'",
        ),
        (["rollout.publish_every=2", "checkpoint_every=2"], "no version to go on from"),
        (["train.dual_clip=1.0"], "dual_clip"),
        (["train.gdn_cp=heads"], "no effect with context_parallel=1"),
        (["train.dual_clip=3.0", "train.off_policy.policy_loss=dppo_tv"], "masks and does not clip"),
        (["train.value_bins=31"], "no effect on a scalar head"),
        (["train.critic_head=hl_gauss", "train.value_min=4.0"], "below value_max"),
        (['train.critic_frozen=["("]'], "no regular expression"),
        (["reward.kind=binary", "reward.shaping=additive"], "does not count them"),
        (["reward.penalty_tests=1.0"], "penalty_tests"),
        (["reward.kind=binary", "reward.scale=10"], "scale=10 has no effect with kind='binary'"),
        (["reward.healthy_turns=10"], "healthy_turns=10 has no effect with shaping='none'"),
        (["reward.shaping=bonus", "reward.penalty_tests=0.5"], "read by additive"),
        (["reward.shaping=additive", "reward.bonus_tests=0.4"], "read by bonus"),
        (["reward.shaping=additive", "reward.discount_per_turn=0.02"], "read by multiplicative"),
        (["reward.shaping=bonus", "reward.discount_floor=0.4"], "read by multiplicative"),
        (["reward.shaping=bonus", "reward.idle_penalty_tests=0.4"], "read by multiplicative"),
        (["train.value_clip=0.3"], "value_clip=0.3 has no effect with critic_steps=1"),
        (["train.lambd=0.9", "train.lambd_alpha=0.05", "train.critic_lambd=1.0"], "lambd=0.9 has no effect"),
        (["train.eps_clip=0.1", "train.off_policy.policy_loss=gspo"], "eps_clip=0.1 has no effect"),
        (["train.eps_clip_high=0.3", "train.off_policy.policy_loss=ipo"], "eps_clip_high=0.3 has no effect"),
        (["train.off_policy.ratio_cap=9.0"], "it belongs to policy_loss dppo_tv"),
        (["train.off_policy.mis_normalize=true", "train.off_policy.importance=tis"], "importance mis_"),
        (["train.actor.lr_decay_style=cosine"], "train.actor: lr_decay_style=cosine needs lr_decay_steps"),
        (["train.critic.min_lr=1e-6"], "train.critic: lr_decay_steps=0 and min_lr=1e-06 have no effect"),
    ],
)
def test_a_combination_that_cannot_be_meant_is_refused(overrides, told):
    with pytest.raises(ValueError, match=told):
        load_config("smoke", overrides)


def test_decoupled_ppo_with_several_updates_is_what_the_current_actor_is_for():
    config = load_config(
        "smoke",
        [
            "train.off_policy.ratio_denominator=current",
            "train.off_policy.importance=decoupled",
            "train.actor_steps=2",
        ],
    )
    assert config.train.off_policy.ratio_denominator == "current"


@pytest.mark.parametrize("spelling", ["{}/", "{}/.", "{}/../actor", "link"])
def test_a_critic_in_the_actors_directory_is_refused_however_it_is_spelt(tmp_path, spelling):
    actor = tmp_path / "actor"
    actor.mkdir()
    os.symlink(actor, tmp_path / "link")
    critic = str(tmp_path / "link") if spelling == "link" else spelling.format(actor)
    with pytest.raises(ValueError, match="by another spelling"):
        load_config("smoke", [f"model.actor_path={actor}", f"model.critic_path={critic}"])


def test_what_an_experiment_takes_back_is_told_and_is_never_a_default():
    for preset in ("quickstart", "smoke", "h200x1", "t1-122b"):
        assert load_config(preset).experiments == ()
    told = load_config(
        "smoke",
        [
            *("rollout.token_fidelity=reencoded", "rollout.publish_every=4"),
            *("train.kl_loss_coef=0.1", "train.regularize_under_replay=true"),
        ],
    ).experiments
    assert [line.partition("=")[0] for line in told] == [
        *("rollout.token_fidelity", "train.regularize_under_replay", "rollout.publish_every")
    ]
    free = ["train.use_rollout_routing_replay=false", "train.measure_free_routing=false"]
    assert len(load_config("smoke", free).experiments) == 1
