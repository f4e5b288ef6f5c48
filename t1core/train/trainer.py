"""The trainer: one PPO step of critic and actor on a batch. One `Trainer` a rank; all ranks call alike.

    V_old           <- critic on the batch
    A, R            <- GAE over trainable tokens
    critic step     K times, clipped value loss around V_old
    logp_behaviour  <- the snapshot that sampled, experts as recorded
    actor step      clipped surrogate against logp_behaviour, experts as recorded

The denominator comes from the trainer's own scoring of the behaviour snapshot, not from the engine, unless
`off_policy` says otherwise: what the two differ by is measured (`logprob_gap/*`, `off_policy/*`), not trained on.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from t1core.model.checksum import weight_checksum
from t1core.model.convert import export_hf
from t1core.records.batch import Batch
from t1core.rl import token_weights
from t1core.train import actor_update, checkpoint, networks, off_policy, offload
from t1core.train.actor_update import score_batch
from t1core.train.behaviour import BehaviourSnapshots
from t1core.train.critic_update import start_from_returns, update_critic
from t1core.train.diagnostics import gap_metrics, gap_parts, value_metrics
from t1core.train.directories import refuse_shared_directory
from t1core.train.learner import Learner, Role
from t1core.train.result import TrainResult
from t1core.train.settings import TrainSettings
from t1core.train.streams import BatchStreams
from t1core.train.surrogate import importance_weights, surrogate
from t1core.train.weights import save_weights

_STARTING_POLICY = 0
PER_TOKEN = ("values", "advantages", "returns", "trainer_logprobs")


@dataclass
class Stopwatch:
    """Wall-clock seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start


class Trainer:
    """Actor and critic of one rank. Call `setup` once, before anything else."""

    def __init__(self, settings: TrainSettings) -> None:
        self.settings = settings

    def setup(self) -> None:
        """Join the process group (made from MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE unless it exists),
        build and load both networks, and keep the starting policy as version 0."""
        self.device = networks.join(self.settings)
        self.actor = networks.build_learner(self.settings, "actor")
        self.critic = networks.build_learner(self.settings, "critic")
        refers_to_start = self.settings.surrogate.kl_loss_coef > 0
        self.snapshots = BehaviourSnapshots(self.actor, pinned=_STARTING_POLICY if refers_to_start else None)
        self.snapshots.take(_STARTING_POLICY)
        self._away: dict[Role, str] = {}

    def close(self) -> None:
        """Leave the process groups."""
        networks.leave()

    @property
    def version(self) -> int:
        """The newest published version of the actor."""
        return self.snapshots.versions[-1]

    def train_batch(self, batch: Batch, *, update_actor: bool, expected_version_lag: int) -> TrainResult:
        """One step on a batch. `expected_version_lag`: how many versions behind the newest its sampler was.

        Without a trainable token no optimiser steps; `train/skipped` is then 1 and what is undefined is NaN.
        """
        settings, watch, cpu_start = self.settings, Stopwatch(), time.process_time()
        with watch("pack"):
            streams = self._put(batch, with_routes=settings.use_rollout_routing_replay)
            metrics = self._batch_metrics(batch, streams)
        if streams.num_loss_tokens == 0:
            return self._skipped(streams, metrics, watch, cpu_start)
        sampler = self._sampler(batch, expected_version_lag=expected_version_lag)
        assert bool(streams.rewards.isfinite().all()), "a reward is not finite"

        with watch("critic"):
            weights = token_weights(
                streams.mask,
                rows=streams.rows,
                trials=streams.trials,
                aggregation=settings.loss_aggregation,
            )
            if settings.value_bins and not settings.critic_path and self.critic.num_steps == 0:
                start_from_returns(
                    self.critic,
                    streams=streams,
                    weights=weights,
                    credit=settings.credit,
                    bins=settings.value_bins,
                )
            judged = update_critic(
                self.critic,
                streams=streams,
                weights=weights,
                credit=settings.credit,
                value_clip=settings.value_clip,
                num_steps=settings.critic_steps,
                bins=settings.value_bins,
            )
            values, target = judged.values, judged.target
            metrics |= judged.metrics
            metrics |= value_metrics(
                values, returns=target.returns, streams=streams, num_tests=batch.num_tests
            )
        per_token = {"values": values, "advantages": target.advantages, "returns": target.returns}

        replayed = settings.use_rollout_routing_replay
        with watch("behaviour_forward"), self.snapshots.restored(sampler):
            behaviour = score_batch(self.actor, streams=streams, replayed=replayed)
            per_token["trainer_logprobs"] = behaviour
            metrics |= gap_metrics(behaviour, streams=streams, area="logprob_gap")
        if settings.measure_free_routing:
            with watch("free_routing_forward"), self.snapshots.restored(sampler):
                per_token["free_logprobs"] = score_batch(self.actor, streams=streams, replayed=False)
                metrics |= gap_metrics(per_token["free_logprobs"], streams=streams, area="logprob_gap_free")
        live = None
        if update_actor:
            with watch("actor"):
                live, measured = self._update_actor(
                    streams,
                    sampler=sampler,
                    behaviour=behaviour,
                    advantages=target.advantages,
                    weights=weights,
                )
                metrics |= measured
        else:
            metrics |= off_policy.weight_metrics(behaviour, streams=streams, settings=settings.surrogate)
        metrics |= gap_parts(
            behaviour,
            streams=streams,
            free=per_token.get("free_logprobs"),
            live=live,
            replayed=replayed,
        )
        return TrainResult(
            metrics=metrics,
            per_token={name: stream.cpu().numpy() for name, stream in per_token.items()},
            timings_s=watch.seconds,
            cpu_s=time.process_time() - cpu_start,
        )

    def supervised_step(self, batch: Batch) -> float:
        """One step of the actor on the mean cross-entropy of the trainable tokens; routes freely. Returns the
        loss before."""
        streams = self._put(batch, with_routes=False)
        if streams.num_loss_tokens == 0:
            return float("nan")
        weights = token_weights(
            streams.mask, rows=streams.rows, trials=streams.trials, aggregation="token_mean"
        )
        return actor_update.update_supervised(self.actor, streams=streams, weights=weights)

    def rotate(self, version: int) -> None:
        """The live actor has been published as `version`: keep it as the newest behaviour snapshot.

        Publishing the newest version once more is fine as long as the actor has not moved since.
        """
        if version == self.version and self.snapshots.is_live(version):
            return
        self.snapshots.take(version)

    def export_actor(self) -> dict[str, np.ndarray]:
        """The live actor with Hugging Face names in fp32, on rank 0; {} elsewhere. Every rank must call."""
        return {
            name: tensor.float().numpy()
            for name, tensor in export_hf(self.actor.model, self.settings.shape).items()
        }

    def checksum(self, role: Role = "actor") -> str:
        """Digest of this rank's weights; equal digests mean equal bits."""
        return weight_checksum(dict(self._role(role).parameters()))

    def save_weights(self, directory: str | os.PathLike, role: Role) -> None:
        """Write a weights-only Hugging Face directory, whole or not at all. ValueError if the other role's
        weights are there."""
        source = {"actor": self.settings.actor_path, "critic": self.settings.critic_path}
        other: Role = "critic" if role == "actor" else "actor"
        refuse_shared_directory(**{role: directory, other: source[other]}, field="save_weights")
        save_weights(
            directory,
            model=self._role(role).model,
            shape=self.settings.shape,
            role=role,
            value_bins=self.settings.value_bins,
        )

    def save_checkpoint(self, directory: str | os.PathLike) -> None:
        """Write everything needed to go on exactly, whole or not at all."""
        checkpoint.save(directory, learners=self._learners(), snapshots=self.snapshots)

    def load_checkpoint(self, directory: str | os.PathLike) -> None:
        """Go on exactly where `save_checkpoint` was called."""
        checkpoint.load(directory, learners=self._learners(), snapshots=self.snapshots)

    def offload(self, role: Role) -> None:
        """Move a role's weights, gradients and optimiser state to the host."""
        assert role not in self._away, f"the {role} is off the device already"
        self._away[role] = offload.offload(self._role(role))

    def reload(self, role: Role) -> None:
        """Bring a role back; asserts that no bit changed."""
        offload.reload(self._role(role), checksum=self._away.pop(role))

    def _update_actor(
        self,
        streams: BatchStreams,
        *,
        sampler: int,
        behaviour: torch.Tensor,
        advantages: torch.Tensor,
        weights: torch.Tensor,
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """The policy updates of one batch: the actor's log-probs before the first, and metrics of the last."""
        settings, chosen = self.settings.surrogate, self.settings.surrogate.off_policy
        replayed = self.settings.use_rollout_routing_replay
        reference = None
        if settings.kl_loss_coef:
            with self.snapshots.restored(_STARTING_POLICY):
                reference = score_batch(self.actor, streams=streams, replayed=replayed)
        live = behaviour if self.snapshots.is_live(sampler) else None
        if live is None and (settings.needs_live_logprobs or chosen.ratio_denominator == "current"):
            live = score_batch(self.actor, streams=streams, replayed=replayed)
        denominator = behaviour
        if chosen.ratio_denominator == "current":
            assert live is not None
            denominator = live
        elif chosen.ratio_denominator == "rollout":
            # What the engine failed to report is counted in logprob_gap/nonfinite, and is the trainer's here.
            reported = streams.rollout_logprobs
            denominator = torch.where(reported.isfinite(), reported, behaviour)
        if chosen.importance != "none":
            weights = (
                weights * importance_weights(denominator, streams=streams, chosen=chosen)[chosen.importance]
            )
        metrics = off_policy.weight_metrics(denominator, streams=streams, settings=settings)
        before = None
        for _ in range(self.settings.actor_steps):
            if live is None and settings.needs_live_logprobs:
                live = score_batch(self.actor, streams=streams, replayed=replayed)
            terms = surrogate(
                settings,
                streams=streams,
                denominator=denominator,
                advantages=advantages,
                weights=weights.float(),
                live=live,
                reference=reference,
            )
            seen, measured = actor_update.update_actor(
                self.actor,
                streams=streams,
                surrogate=terms,
                replayed=replayed,
                moe_aux_loss_coeff=self.settings.moe_aux_loss_coeff,
            )
            before, live = seen if before is None else before, None
            metrics |= measured
        assert before is not None
        metrics |= off_policy.objective_metrics(
            before, denominator=denominator, advantages=advantages, streams=streams, settings=settings
        )
        return before, metrics

    def _sampler(self, batch: Batch, *, expected_version_lag: int) -> int:
        """The one version that sampled every trainable token, which must lag as expected."""
        versions = np.unique(batch.weight_versions[batch.loss_mask.astype(bool)])
        assert len(versions) == 1, (
            f"trainable tokens of versions {versions.tolist()} in one batch, expected one"
        )
        lag = self.version - int(versions[0])
        assert lag == expected_version_lag, (
            f"the batch was sampled by version {versions[0]}, {lag} behind {self.version}; "
            f"expected {expected_version_lag}"
        )
        return int(versions[0])

    def _batch_metrics(self, batch: Batch, streams: BatchStreams) -> dict[str, float]:
        staleness = self.version - batch.weight_versions[batch.loss_mask.astype(bool)]
        return {
            "staleness/mean": float(staleness.mean()) if len(staleness) else float("nan"),
            "staleness/max": float(staleness.max()) if len(staleness) else float("nan"),
            "train/tokens": float(batch.num_tokens),
            "train/loss_tokens": float(streams.num_loss_tokens),
            "train/micro_batches": float(len(streams.micro_batches)),
            "train/skipped": 0.0,
        }

    def _skipped(
        self, streams: BatchStreams, metrics: dict[str, float], watch: Stopwatch, cpu_start: float
    ) -> TrainResult:
        nothing = np.full(streams.num_tokens, np.nan, dtype=np.float32)
        return TrainResult(
            metrics=metrics | {"train/skipped": 1.0},
            per_token={name: nothing for name in PER_TOKEN},
            timings_s=watch.seconds,
            cpu_s=time.process_time() - cpu_start,
        )

    def _put(self, batch: Batch, *, with_routes: bool) -> BatchStreams:
        return networks.put(self.settings, batch, device=self.device, with_routes=with_routes)

    def _learners(self) -> dict[str, Learner]:
        return {"actor": self.actor, "critic": self.critic}

    def _role(self, role: Role) -> Learner:
        return self.actor if role == "actor" else self.critic
