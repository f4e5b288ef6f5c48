"""The critic's part of a step: V_old, what follows from it, and the clipped value updates."""

from dataclasses import dataclass
from typing import Literal

import torch
from megatron.core import parallel_state

from t1core.rl import (
    Advantages,
    ValueBins,
    expectation,
    gae,
    hl_gauss_loss,
    length_adaptive_lambda,
    return_histogram_bias,
    value_loss,
    whiten,
)
from t1core.train.learner import Learner
from t1core.train.streams import BatchStreams, DeviceMicroBatch, total_over_batch

ChunkReward = Literal["each", "once"]


@dataclass(frozen=True)
class Credit:
    """How rewards become returns and advantages.

    lambd is the actor's, critic_lambd the critic's. lambd_alpha, if set, takes lambd's place row by row (VAPO).
    chunk_reward says whether each chunk of a trial is paid, or the chain of them once.
    """

    gamma: float = 1.0
    lambd: float = 1.0
    critic_lambd: float = 1.0
    lambd_alpha: float | None = None
    chunk_reward: ChunkReward = "each"
    normalize_advantages: bool = False

    def returns(self, values: torch.Tensor, *, streams: BatchStreams) -> torch.Tensor:
        """The critic's targets, float32 [T]."""
        return self._gae(values, streams, self.critic_lambd).returns

    def advantages(self, values: torch.Tensor, *, streams: BatchStreams) -> torch.Tensor:
        """The actor's advantages, float32 [T]."""
        rows, rewards = self._paid(streams)
        lambd: float | torch.Tensor = self.lambd
        if self.lambd_alpha is not None:
            lambd = length_adaptive_lambda(
                streams.mask, rows=rows, num_rows=len(rewards), alpha=self.lambd_alpha
            )
        advantages = self._gae(values, streams, lambd).advantages
        return whiten(advantages, mask=streams.mask) if self.normalize_advantages else advantages

    @property
    def returns_are_rewards(self) -> bool:
        """Whether the critic's targets do not depend on its values."""
        return self.gamma == self.critic_lambd == 1.0

    def _gae(self, values: torch.Tensor, streams: BatchStreams, lambd: float | torch.Tensor) -> Advantages:
        rows, rewards = self._paid(streams)
        return gae(values, rewards=rewards, mask=streams.mask, rows=rows, gamma=self.gamma, lambd=lambd)

    def _paid(self, streams: BatchStreams) -> tuple[torch.Tensor, torch.Tensor]:
        """What is paid once (rows, or trials as chains of their chunks): its number for each token, its reward."""
        if self.chunk_reward == "each":
            return streams.rows, streams.rewards
        rewards = streams.rewards.new_zeros(int(streams.trials.max()) + 1)
        return streams.trials[streams.rows], rewards.index_copy(0, streams.trials, streams.rewards)


@dataclass(frozen=True)
class CriticObjective:
    """What a batch does to a critic: `num_steps` updates, all clipped around the values before the first.

    bins: of an HL-Gauss head, None for a scalar one. is_cold: the head comes from nowhere, so its bins start as the
    histogram of the first batch's returns.
    """

    credit: Credit
    value_clip: float
    num_steps: int
    bins: ValueBins | None
    is_cold: bool


@dataclass(frozen=True)
class CriticUpdate:
    """values float32 [T]: V_old, those before the update. target: what GAE makes of them. metrics: the last
    update's."""

    values: torch.Tensor
    target: Advantages
    metrics: dict[str, float]


def update_critic(
    critic: Learner, *, streams: BatchStreams, weights: torch.Tensor, objective: CriticObjective
) -> CriticUpdate:
    """The critic's updates on one batch; weights float32 [T]."""
    credit, bins, num_steps = objective.credit, objective.bins, objective.num_steps

    def step(old: torch.Tensor | None, returns: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
        return _step(
            critic,
            streams,
            old,
            returns=returns,
            weights=weights,
            value_clip=objective.value_clip,
            bins=bins,
        )

    if bins is not None and objective.is_cold and critic.num_steps == 0:
        _start_from_returns(critic, streams=streams, weights=weights, credit=credit, bins=bins)
    metrics: dict[str, float] = {}
    if credit.returns_are_rewards:
        # Every return is its row's reward, whatever the values are, so the first update needs no V_old before
        # it: its own forward pass, still at the old weights, is V_old. That saves a pass.
        returns = credit.returns(torch.zeros_like(streams.rollout_logprobs), streams=streams)
        values, metrics = step(None, returns)
        num_steps -= 1
    else:
        values = score_values(critic, streams=streams, bins=bins)
        returns = credit.returns(values, streams=streams)
    for _ in range(num_steps):
        _, metrics = step(values, returns)
    target = Advantages(advantages=credit.advantages(values, streams=streams), returns=returns)
    if bins is not None:
        chosen = returns[streams.mask]
        outside = (chosen < bins.low) | (chosen > bins.high)
        metrics["critic/return_outside_bins_frac"] = float(outside.double().mean())
    return CriticUpdate(values=values, target=target, metrics=metrics)


def score_values(critic: Learner, *, streams: BatchStreams, bins: ValueBins | None) -> torch.Tensor:
    """The value at every token under the critic's present weights, float32 [T]; 0 for a row's first."""
    return streams.merge(critic.score(streams.micro_batches, lambda out, _: _values(out, bins)))


def _start_from_returns(
    critic: Learner, *, streams: BatchStreams, weights: torch.Tensor, credit: Credit, bins: ValueBins
) -> None:
    """Set the bias of a fresh HL-Gauss head to the histogram of this batch's Monte-Carlo returns."""
    monte_carlo = Credit(gamma=credit.gamma, chunk_reward=credit.chunk_reward)
    returns = monte_carlo.returns(torch.zeros_like(streams.rollout_logprobs), streams=streams)
    if parallel_state.is_pipeline_last_stage():
        bias = critic.model.output_layer.bias
        with torch.no_grad():
            bias.copy_(return_histogram_bias(returns, weights=weights, bins=bins))
    critic.optimizer.reload_model_params()


def _values(out: torch.Tensor, bins: ValueBins | None) -> torch.Tensor:
    """[P, outputs] to the values float32 [P]."""
    return out.squeeze(-1) if bins is None else expectation(out, bins=bins)


def _step(
    critic: Learner,
    streams: BatchStreams,
    old_values: torch.Tensor | None,
    *,
    returns: torch.Tensor,
    weights: torch.Tensor,
    value_clip: float,
    bins: ValueBins | None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """One update, clipped around `old_values` (None: the current ones); values before it, and metrics."""

    def loss(
        out: torch.Tensor, micro: DeviceMicroBatch
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        values = _values(out, bins)
        anchored = dict(
            old_values=values.detach() if old_values is None else micro.take(old_values),
            returns=micro.take(returns),
            mask=micro.take(streams.mask),
            value_clip=value_clip,
        )
        result = value_loss(values, **anchored) if bins is None else hl_gauss_loss(out, **anchored, bins=bins)
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
