"""What a trainer is told: its plain settings, from a campaign's configuration. Imported inside trainer processes."""

from t1core.config import CampaignConfig, OptimizerSettings
from t1core.config import TrainSettings as CampaignTrainSettings
from t1core.model.layout import Layout
from t1core.model.shape import ModelShape
from t1core.rl.hl_gauss import ValueBins
from t1core.train.adam import Adam
from t1core.train.learning_rate import LearningRate
from t1core.train.settings import TrainSettings


def train_settings(
    config: CampaignConfig, *, actor_path: str, critic_path: str | None, shape: ModelShape | None = None
) -> TrainSettings:
    """The trainer's plain settings, from the configuration. `shape`: that of an actor which is not here."""
    train = config.train
    return TrainSettings(
        actor_path=actor_path,
        critic_path=critic_path,
        shape=shape or ModelShape.from_hf(actor_path),
        layout=Layout(
            tp=train.tensor_parallel,
            pp=train.pipeline_parallel,
            cp=train.context_parallel,
            ep=train.expert_parallel,
            gdn_cp=train.gdn_cp,
        ),
        precision=train.precision,
        kernels=train.kernels,
        actor=_adam(train.actor),
        critic=_adam(train.critic),
        eps_clip=train.eps_clip,
        eps_clip_high=train.eps_clip_high,
        dual_clip=train.dual_clip,
        kl_loss_coef=train.kl_loss_coef,
        moe_aux_loss_coeff=train.moe_aux_loss_coeff,
        regularize_under_replay=train.regularize_under_replay,
        off_policy=train.off_policy,
        value_clip=train.value_clip,
        advantage=train.advantage,
        grpo_std_normalization=train.grpo_std_normalization,
        value_bins=_value_bins(train),
        gamma=train.gamma,
        lambd=train.lambd,
        critic_lambd=train.critic_lambd,
        lambd_alpha=train.lambd_alpha,
        normalize_advantages=train.normalize_advantages,
        chunk_reward=train.chunk_reward,
        actor_frozen=train.actor_frozen,
        critic_frozen=train.critic_frozen,
        loss_aggregation=train.loss_aggregation,
        critic_steps=train.critic_steps,
        actor_steps=train.actor_steps,
        max_tokens_per_gpu=train.max_tokens_per_gpu,
        use_rollout_routing_replay=train.use_rollout_routing_replay,
        measure_free_routing=train.measure_free_routing,
        offload=train.offload,
        recompute=train.recompute,
        group_timeout_s=train.group_timeout_s,
        parallel_group_timeout_s=train.parallel_group_timeout_s,
        seed=config.seed,
        max_version_lag=config.rollout.max_staleness,
    )


def _value_bins(train: CampaignTrainSettings) -> ValueBins | None:
    if train.critic_head == "scalar":
        return None
    return ValueBins(num=train.value_bins, low=train.value_min, high=train.value_max)


def _adam(settings: OptimizerSettings) -> Adam:
    return Adam(
        lr=LearningRate(
            settings.lr,
            style=settings.lr_decay_style,
            warmup_steps=settings.lr_warmup_steps,
            decay_steps=settings.lr_decay_steps,
            floor=settings.min_lr,
        ),
        betas=(settings.adam_beta1, settings.adam_beta2),
        weight_decay=settings.weight_decay,
        clip_grad=settings.clip_grad,
    )
