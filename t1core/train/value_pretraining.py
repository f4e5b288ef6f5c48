"""Value pretraining: a critic alone, on batches that any policy sampled (VC-PPO 2503.01491, offline).

The targets are Monte-Carlo returns (lambda 1), so nothing is bootstrapped from the values being learnt and it does not
matter which policy the present actor is. One `ValuePretrainer` a rank; all ranks call alike.
"""

import os
from collections.abc import Sequence
from dataclasses import replace

from t1core.records.batch import Batch
from t1core.rl import explained_variance, r_squared, token_weights, value_bias, value_moments
from t1core.train import networks
from t1core.train.critic_update import score_values, update_critic
from t1core.train.settings import TrainSettings
from t1core.train.weights import save_weights


class ValuePretrainer:
    """Call `setup` once, before anything else."""

    def __init__(self, settings: TrainSettings) -> None:
        self.settings = settings
        objective = settings.critic_objective
        self._objective = replace(objective, credit=replace(objective.credit, critic_lambd=1.0))

    def setup(self) -> None:
        """Join the process group and build the critic: warmed, or the actor's backbone under a fresh head."""
        self._device = networks.join(self.settings)
        self._critic = networks.build_learner(self.settings, "critic")

    def close(self) -> None:
        """Leave the process groups."""
        networks.leave()

    def step(self, batch: Batch) -> dict[str, float]:
        """`critic_steps` updates on a batch; critic/loss, critic/clip_frac and so on of the last. {} without a
        trainable token, and then nothing learns."""
        settings = self.settings
        streams = networks.put(settings, batch, device=self._device, with_routes=False)
        if streams.num_loss_tokens == 0:
            return {}
        weights = token_weights(
            streams.mask, rows=streams.rows, trials=streams.trials, aggregation=settings.loss_aggregation
        )
        return update_critic(
            self._critic, streams=streams, weights=weights, objective=self._objective
        ).metrics

    def judge(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Explained variance, R^2 and bias of the present values over all loss tokens of the batches together."""
        moments = None
        for batch in batches:
            streams = networks.put(self.settings, batch, device=self._device, with_routes=False)
            values = score_values(self._critic, streams=streams, bins=self._objective.bins)
            returns = self._objective.credit.returns(values, streams=streams)
            found = value_moments(values, returns=returns, mask=streams.mask)
            moments = found if moments is None else moments + found
        assert moments is not None, "no batch to judge on"
        return {
            "critic/explained_variance": explained_variance(moments),
            "critic/r2": r_squared(moments),
            "critic/value_bias": value_bias(moments),
        }

    def save(self, directory: str | os.PathLike) -> None:
        """Write the critic's weights; every rank must call."""
        save_weights(
            directory,
            model=self._critic.model,
            shape=self.settings.shape,
            role="critic",
            value_bins=self.settings.value_bins,
        )
