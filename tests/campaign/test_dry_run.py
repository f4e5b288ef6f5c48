"""A campaign rehearsed: the published one's objects hold the published values, and what does not fit is refused."""

import pytest
from typer.testing import CliRunner

from t1core.campaign.dry_run import dry_run
from t1core.cli import app
from t1core.config import load_config


@pytest.fixture(scope="module")
def published():
    return dry_run(load_config("t1-122b"))


def test_the_published_optimisers_and_losses_reach_the_trainer(published):
    settings = published.train_settings
    for role, lr in (("actor", 1.0e-6), ("critic", 1.5e-5)):
        adam, made = getattr(settings, role), published.optimizer[role]
        assert (adam.betas, adam.weight_decay, adam.lr.style) == ((0.9, 0.98), 0.1, "constant")
        assert (made.lr, made.adam_beta1, made.adam_beta2, made.weight_decay) == (lr, 0.9, 0.98, 0.1)
        assert made.bf16 and made.use_distributed_optimizer
    assert (settings.eps_clip, settings.eps_clip_high, settings.value_clip) == (0.2, None, 0.2)
    assert settings.credit.gamma == settings.credit.lambd == settings.credit.critic_lambd == 1.0
    assert not settings.normalize_advantages and settings.loss_aggregation == "row_mean"
    assert settings.kl_loss_coef == settings.moe_aux_loss_coeff == 0
    assert settings.off_policy.importance == "none" and settings.off_policy.ratio_denominator == "snapshot"
    assert (settings.actor_steps, settings.critic_steps) == (1, 1)


def test_the_published_layout_and_precisions_reach_megatron(published):
    assert published.num_ranks == 64
    for role, config in published.transformer.items():
        assert (config.num_layers, config.hidden_size, config.num_moe_experts) == (48, 3072, 256)
        assert config.moe_router_topk == 8
        assert (config.tensor_model_parallel_size, config.pipeline_model_parallel_size) == (2, 4)
        assert (config.context_parallel_size, config.expert_model_parallel_size) == (4, 16)
        assert config.bf16 and config.moe_router_dtype == "fp32" and config.fp8 is None
        assert config.recompute_granularity == "full"
        assert config.moe_enable_routing_replay == (role == "actor")


def test_the_published_walls_rates_and_intervals_are_the_campaigns():
    config = load_config("t1-122b")
    rollout, agent, train, cluster = config.rollout, config.agent, config.train, config.cluster
    assert (rollout.rollout_batch_size, rollout.over_sampling_batch_size) == (512, 560)
    assert (rollout.samples_per_task, rollout.tail, rollout.temperature) == (1, "cut", 1.0)
    assert agent.context_tokens == 84 * 1024 == 86_016
    assert (agent.max_turns, agent.agent_timeout_s) == (60, 3600)
    assert (rollout.verifier_timeout_s, rollout.trial_deadline_s) == (900, 5400)
    assert (config.reward.kind, config.reward.scale, config.reward.shaping) == ("dense", 20, "none")
    assert (config.sandbox.create_rate_per_s, config.sandbox.storage_mb) == (6, 10 * 1024)
    assert (cluster.probe_grace_s, cluster.probe_period_s, cluster.control_deadline_s) == (600, 30, 120)
    assert (train.group_timeout_s, train.parallel_group_timeout_s) == (60 * 60, 120 * 60)
    assert (config.checkpoint_every, config.checkpoint_content) == (10, "weights")
    assert train.num_critic_only_steps == 2 and config.num_steps == 112
    assert config.model.actor_path != config.model.critic_path


def test_the_timeouts_of_collectives_reach_the_trainer(published):
    settings = published.train_settings
    assert (settings.group_timeout_s, settings.parallel_group_timeout_s) == (3600, 7200)


def test_the_plan_says_what_a_rank_holds_and_what_is_not_built(published):
    text = "\n".join(published.lines)
    for part in (
        "64 ranks: TP 2 x PP 4 x CP 4 x DP 2, EP 16: 16 experts a rank",
        "512 of 560 launched; 256 rows a data parallel rank; a row of 86016 tokens is 21504",
        "routes 384 B a token",
        "--tp-size 8",
    ):
        assert part in text


def test_a_plan_that_can_be_built_says_why_no_engine_would_be_started(published):
    assert "rollout.sglang.tensor_parallel=8" in published.refusal
    single = ["rollout.sglang.tensor_parallel=1"]
    assert dry_run(load_config("t1-122b", single)).refusal is None
    small = dry_run(load_config("t1-122b", [*single, "rollout.sglang.max_total_tokens=86016"]))
    assert "max_total_tokens=86016" in small.refusal and "86016 tokens and one more" in small.refusal


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["train.expert_parallel=48"], "ep=48 does not divide"),
        (["train.tensor_parallel=4"], "num_query_groups=2"),
        (["model.actor_path=elsewhere"], "nor a model whose shape is known"),
        (['rollout.sglang.flags=["--enable-hierarchical-cache"]'], "host tier"),
    ],
)
def test_what_could_not_be_built_is_refused(overrides, words):
    with pytest.raises(ValueError, match=words):
        dry_run(load_config("t1-122b", overrides))


def test_the_command_prints_the_plan_and_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["campaign", "t1-122b", "--dry-run"])
    assert done.exit_code != 0 and "can be built and not started: rollout.sglang.tensor_parallel=8" in str(
        done.exception
    )
    assert "trainer    64 ranks" in done.output and not list(tmp_path.iterdir())
