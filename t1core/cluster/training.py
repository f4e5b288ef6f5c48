"""What a trainer is told: its plain settings, from a campaign's configuration. Imported inside trainer processes."""

from t1core.config import CampaignConfig
from t1core.model.layout import Layout
from t1core.model.shape import ModelShape
from t1core.train.settings import TrainSettings


def train_settings(config: CampaignConfig, *, actor_path: str, critic_path: str | None) -> TrainSettings:
    """The trainer's plain settings, from the configuration."""
    train = config.train
    return TrainSettings(
        actor_path=actor_path,
        critic_path=critic_path,
        shape=ModelShape.from_hf(actor_path),
        layout=Layout(
            tp=train.tensor_parallel,
            pp=train.pipeline_parallel,
            cp=train.context_parallel,
            ep=train.expert_parallel,
        ),
        precision=train.precision,
        actor_lr=train.actor.lr,
        critic_lr=train.critic.lr,
        adam_beta1=train.actor.adam_beta1,
        adam_beta2=train.actor.adam_beta2,
        actor_weight_decay=train.actor.weight_decay,
        critic_weight_decay=train.critic.weight_decay,
        actor_clip_grad=train.actor.clip_grad,
        critic_clip_grad=train.critic.clip_grad,
        eps_clip=train.eps_clip,
        eps_clip_high=train.eps_clip_high,
        value_clip=train.value_clip,
        gamma=train.gamma,
        lambd=train.lambd,
        loss_aggregation=train.loss_aggregation,
        critic_steps=train.critic_steps,
        actor_steps=train.actor_steps,
        max_tokens_per_gpu=train.max_tokens_per_gpu,
        use_rollout_routing_replay=train.use_rollout_routing_replay,
        measure_free_routing=train.measure_free_routing,
        seed=config.seed,
    )
