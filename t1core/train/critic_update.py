"""The critic's part of a step: V_old, what follows from it, and the clipped value updates."""

from dataclasses import dataclass

import torch

from t1core.rl import Advantages, gae, value_loss
from t1core.train.learner import Learner
from t1core.train.streams import BatchStreams, DeviceMicroBatch, total_over_batch


@dataclass(frozen=True)
class CriticUpdate:
    """values float32 [T]: V_old, those before the update. target: what GAE makes of them. metrics: the last
    update's."""

    values: torch.Tensor
    target: Advantages
    metrics: dict[str, float]


def update_critic(
    critic: Learner,
    *,
    streams: BatchStreams,
    weights: torch.Tensor,
    gamma: float,
    lambd: float,
    value_clip: float,
    num_steps: int,
) -> CriticUpdate:
    """`num_steps` updates, all clipped around the values before the first. weights float32 [T]."""

    def targets(values: torch.Tensor) -> Advantages:
        return gae(
            values, rewards=streams.rewards, mask=streams.mask, rows=streams.rows, gamma=gamma, lambd=lambd
        )

    def step(old: torch.Tensor | None, returns: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
        return _step(critic, streams, old, returns=returns, weights=weights, value_clip=value_clip)

    metrics: dict[str, float] = {}
    if gamma == lambd == 1.0:
        # Every return is its row's reward, whatever the values are, so the first update needs no V_old before
        # it: its own forward pass, still at the old weights, is V_old. That saves a pass.
        values, metrics = step(None, targets(torch.zeros_like(streams.rollout_logprobs)).returns)
        num_steps -= 1
    else:
        values = streams.merge(critic.score(streams.micro_batches, lambda out, _: out.squeeze(-1)))
    target = targets(values)
    for _ in range(num_steps):
        _, metrics = step(values, target.returns)
    return CriticUpdate(values=values, target=target, metrics=metrics)


def _step(
    critic: Learner,
    streams: BatchStreams,
    old_values: torch.Tensor | None,
    *,
    returns: torch.Tensor,
    weights: torch.Tensor,
    value_clip: float,
) -> tuple[torch.Tensor, dict[str, float]]:
    """One update, clipped around `old_values` (None: the current ones); values before it, and metrics."""

    def loss(
        out: torch.Tensor, micro: DeviceMicroBatch
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        values = out.squeeze(-1)
        result = value_loss(
            values,
            old_values=values.detach() if old_values is None else micro.take(old_values),
            returns=micro.take(returns),
            mask=micro.take(streams.mask),
            value_clip=value_clip,
        )
        total = (result.per_token * micro.take(weights)).sum()
        return total, (torch.stack([total.detach(), result.is_clipped.sum()]), values.detach())

    reports = critic.accumulate(streams.micro_batches, loss)
    total, clipped = total_over_batch([sums for sums, _ in reports], width=2, device=streams.device).tolist()
    metrics = {
        "critic/loss": total,
        "critic/clip_frac": clipped / streams.num_loss_tokens,
        "critic/lr": critic.lr,
        "critic/grad_norm": critic.step(),
    }
    return streams.merge([values for _, values in reports]), metrics
