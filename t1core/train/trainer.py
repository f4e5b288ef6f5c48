"""The trainer: one PPO step of critic and actor on a batch. One `Trainer` a rank; all ranks call alike.

    V_old           <- critic on the batch                      }
    A, R            <- GAE over trainable tokens                } or, without a critic, A from each task's samples
    critic step     K times, clipped value loss around V_old    }
    logp_behaviour  <- the snapshot that sampled, experts as recorded
    actor step      clipped surrogate against logp_behaviour, experts as recorded

The denominator comes from the trainer's own scoring of the behaviour snapshot, not from the engine, unless
`off_policy` says otherwise: what the two differ by is measured (`logprob_gap/*`, `off_policy/*`), not trained on. With
`offload` only the network that computes is on the device; between steps that is the actor.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
import torch.distributed as dist

from t1core.model import replay
from t1core.model.checksum import weight_checksum
from t1core.model.convert import export_hf
from t1core.records.batch import Batch
from t1core.rl import token_weights
from t1core.train import actor_update, checkpoint, networks, off_policy, offload
from t1core.train import warm_up as warming
from t1core.train.actor_update import score_batch
from t1core.train.behaviour import BehaviourSnapshots, score_by_sampler
from t1core.train.checkpoint_directory import EXPORT, Content, write_manifest
from t1core.train.critic_update import update_critic
from t1core.train.diagnostics import gap_metrics, gap_parts, value_metrics
from t1core.train.directories import refuse_shared_directory, written_whole
from t1core.train.free_routing import flip_metrics, flipped_layers, score_freely
from t1core.train.group_baseline import group_targets
from t1core.train.learner import Learner, Role
from t1core.train.result import TrainResult
from t1core.train.settings import TrainSettings
from t1core.train.streams import BatchStreams
from t1core.train.surrogate import importance_weights, surrogate
from t1core.train.weights import save_weights

_STARTING_POLICY = 0
PER_TOKEN = {
    "gae": ("values", "advantages", "returns", "trainer_logprobs"),
    "grpo": ("advantages", "trainer_logprobs"),
}


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
        settings = self.settings
        if settings.offload:
            offload.refuse_impossible()
        self.device = networks.join(settings)
        self._away: dict[Role, offload.Away] = {}
        roles: tuple[Role, ...] = ("actor", "critic") if settings.advantage == "gae" else ("actor",)
        self.learners: dict[Role, Learner] = {role: networks.build_learner(settings, role) for role in roles}
        self.snapshots = BehaviourSnapshots(
            self.actor,
            pinned=_STARTING_POLICY if settings.kl_loss_coef else None,
            most_kept=settings.max_version_lag + 1,
        )
        if settings.offload:
            offload.refuse_without_room(self.learners, num_snapshots=self.snapshots.most_copies)
        self.snapshots.take(_STARTING_POLICY)
        self._take_turn("actor")

    def warm_up(self, *, num_tokens: int) -> dict[Role, float]:
        """Have every kernel of a step compiled, by passes over `num_tokens` made-up tokens and over half of them.
        Seconds by role; nothing is learnt."""
        settings = self.settings
        seconds: dict[Role, float] = {}
        for role in self.learners:
            with self._present(role) as learner:
                for total in (num_tokens, num_tokens // 2):
                    batch = warming.made_up_batch(
                        settings.shape,
                        lengths=(total // 2, total - total // 2),
                        with_routes=settings.use_rollout_routing_replay,
                    )
                    seconds[role] = seconds.get(role, 0.0) + warming.warm_up(
                        learner,
                        role,
                        streams=self._put(batch, with_routes=settings.use_rollout_routing_replay),
                        replayed=settings.use_rollout_routing_replay,
                        is_scored_freely=settings.measure_free_routing,
                    )
        return seconds

    def close(self) -> None:
        """Leave the process groups."""
        networks.leave()

    @property
    def actor(self) -> Learner:
        return self.learners["actor"]

    @property
    def critic(self) -> Learner:
        """ValueError under advantage='grpo', which has none."""
        return self._role("critic")

    @property
    def version(self) -> int:
        """The newest published version of the actor."""
        return self.snapshots.versions[-1]

    def train_batch(
        self,
        batch: Batch,
        *,
        update_actor: bool,
        expected_version_lag: int,
        max_version_lag: int | None = None,
    ) -> TrainResult:
        """One step on a batch. `expected_version_lag`: how many versions behind the newest its sampler was; with
        `max_version_lag` several versions sampled it, none fewer and none more than these two behind. Each token's
        behaviour is then scored by the snapshot that sampled it.

        Without a trainable token no optimiser steps; `train/skipped` is then 1 and what is undefined is NaN. Where
        nothing of the actor's loss is left (every group of a grpo batch is flat, every token's weight is 0) the actor
        does not step: its moments and weight decay would move it all the same. `actor/skipped` is then 1.
        """
        settings, watch, cpu_start = self.settings, Stopwatch(), time.process_time()
        with watch("pack"):
            streams = self._put(batch, with_routes=settings.use_rollout_routing_replay)
            metrics = self._batch_metrics(batch, streams)
        if streams.num_loss_tokens == 0:
            return self._skipped(streams, metrics, watch, cpu_start)
        samplers = self._samplers(batch, least_lag=expected_version_lag, most_lag=max_version_lag)
        assert bool(streams.rewards.isfinite().all()), "a reward is not finite"

        weights = token_weights(
            streams.mask,
            rows=streams.rows,
            trials=streams.trials,
            aggregation=settings.loss_aggregation,
        )
        if settings.advantage == "gae":
            self._take_turn("critic", watch)
            with watch("critic"):
                judged = update_critic(
                    self.critic, streams=streams, weights=weights, objective=settings.critic_objective
                )
                metrics |= judged.metrics
                metrics |= value_metrics(
                    judged.values, returns=judged.target.returns, streams=streams, num_tests=batch.num_tests
                )
            per_token = {
                "values": judged.values,
                "advantages": judged.target.advantages,
                "returns": judged.target.returns,
            }
        else:
            advantages = group_targets(batch, streams=streams, normalise_std=settings.grpo_std_normalization)
            per_token = {"advantages": advantages}

        self._take_turn("actor", watch)
        replayed = settings.use_rollout_routing_replay
        by_sampler = partial(
            score_by_sampler, self.snapshots, samplers=samplers, versions=batch.weight_versions
        )
        with watch("behaviour_forward"):
            behaviour = by_sampler(lambda: score_batch(self.actor, streams=streams, replayed=replayed))
            per_token["trainer_logprobs"] = behaviour
            metrics |= gap_metrics(behaviour, streams=streams, area="logprob_gap")
        if settings.measure_free_routing:
            with watch("free_routing_forward"):
                free, flipped = by_sampler(lambda: self._score_and_flip_freely(streams))
                per_token["free_logprobs"] = free
                per_token["flipped_layers"] = flipped
                metrics |= gap_metrics(free, streams=streams, area="logprob_gap_free")
                metrics |= flip_metrics(flipped, mask=streams.mask, num_layers=settings.shape.num_layers)
        live = None
        if update_actor:
            with watch("actor"):
                live, measured = self._update_actor(
                    streams,
                    samplers=samplers,
                    behaviour=behaviour,
                    advantages=per_token["advantages"],
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

    def _score_and_flip_freely(self, streams: BatchStreams) -> torch.Tensor:
        """Free log-probs and the number of flipped layers of every token, float32 [2, T]."""
        free = score_freely(self.actor, streams=streams)
        return torch.stack([free.logprobs, flipped_layers(free, streams=streams)])

    def score(self, batch: Batch) -> np.ndarray:
        """The live actor's log-prob of every token, routes replayed: float32 [T], 0 for a row's first."""
        return score_batch(self.actor, streams=self._put(batch, with_routes=True), replayed=True).numpy(
            force=True
        )

    def score_freely(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The live actor's log-probs with free routing, float32 [T], and its flips, bool [T, layers]: where the
        position that predicts a token chose another set of experts than the record."""
        streams = self._put(batch, with_routes=True)
        free = score_freely(self.actor, streams=streams)
        numbers = replay.layer_numbers(self.actor.model)
        flips = np.zeros((streams.num_tokens, self.settings.shape.num_layers), dtype=bool)
        for layer in range(self.settings.shape.num_layers):
            here = [
                micro[:, numbers.index(layer)] if layer in numbers else torch.zeros_like(micro[:, 0])
                for micro in free.flips
            ]
            flips[:, layer] = streams.merge(here).bool().numpy(force=True)
        return free.logprobs.numpy(force=True), flips

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
        with self._present(role) as learner:
            return weight_checksum(dict(learner.parameters()))

    def save_weights(self, directory: str | os.PathLike, role: Role) -> None:
        """Write a weights-only Hugging Face directory, whole or not at all. ValueError if the other role's
        weights are there."""
        source = {"actor": self.settings.actor_path, "critic": self.settings.critic_path}
        other: Role = "critic" if role == "actor" else "actor"
        refuse_shared_directory(**{role: directory, other: source[other]}, field="save_weights")
        with self._present(role) as learner:
            save_weights(
                directory,
                model=learner.model,
                shape=self.settings.shape,
                role=role,
                tokenizer=self.settings.actor_path if role == "actor" else None,
                value_bins=self.settings.value_bins,
            )

    def save_checkpoint(self, directory: str | os.PathLike, *, content: Content = "exact") -> None:
        """Write weights in Hugging Face form and, with content "exact", all that is needed to go on exactly; whole or
        not at all."""
        with written_whole(directory) as scratch:
            for role in self.learners:
                self.save_weights(scratch / EXPORT / role, role)
            if content == "exact":
                checkpoint.save(
                    scratch,
                    roles=tuple(self.learners),
                    present=self._present,
                    snapshots=self.snapshots,
                    terms=self.settings.checkpoint_terms,
                )
            if dist.get_rank() == 0:
                write_manifest(scratch, content=content)

    def load_checkpoint(self, directory: str | os.PathLike) -> int:
        """Go on exactly where `save_checkpoint` was called. Returns the newest version that had been published.

        The engines know nothing of it: before anything is sampled, publish the actor under that version (or, where
        `is_published` says that the actor had moved on, under the next), so that the first rollout is the restored
        weights'. ValueError where the checkpoint does not fit the settings: another network, critic head, precision or
        set of frozen parts, or no starting policy to stay near.
        """
        checkpoint.load(
            directory,
            roles=tuple(self.learners),
            present=self._present,
            snapshots=self.snapshots,
            terms=self.settings.checkpoint_terms,
        )
        return self.version

    @property
    def is_published(self) -> bool:
        """Whether the actor is the newest published version, and not ahead of it."""
        return self.snapshots.is_live(self.version)

    def offload(self, role: Role) -> None:
        """Move a role's weights, waiting gradients and optimiser state to the host."""
        assert role not in self._away, f"the {role} is off the device already"
        self._away[role] = offload.offload(self._role(role))

    def reload(self, role: Role) -> None:
        """Bring a role back; asserts that no bit changed."""
        offload.reload(self._role(role), self._away.pop(role))

    def _take_turn(self, role: Role, watch: Stopwatch | None = None) -> None:
        """With `offload`: have `role` on the device, and nothing else."""
        watch = watch or Stopwatch()
        if not self.settings.offload:
            return
        for other in self.learners:
            if other != role and other not in self._away:
                with watch("offload"):
                    self.offload(other)
        if role in self._away:
            with watch("reload"):
                self.reload(role)

    @contextmanager
    def _present(self, role: Role) -> Iterator[Learner]:
        """Within the block `role` is on the device; with `offload` the actor is there again after it."""
        self._take_turn(role)
        yield self._role(role)
        self._take_turn("actor")

    def _update_actor(
        self,
        streams: BatchStreams,
        *,
        samplers: Sequence[int],
        behaviour: torch.Tensor,
        advantages: torch.Tensor,
        weights: torch.Tensor,
    ) -> tuple[torch.Tensor | None, dict[str, float]]:
        """The policy updates of one batch: the actor's log-probs before the first (None if unknown and without a
        step), and metrics of the last."""
        settings, chosen = self.settings.surrogate, self.settings.surrogate.off_policy
        replayed = self.settings.use_rollout_routing_replay
        reference = None
        if settings.kl_loss_coef:
            with self.snapshots.restored(_STARTING_POLICY):
                reference = score_batch(self.actor, streams=streams, replayed=replayed)
        live = behaviour if all(map(self.snapshots.is_live, samplers)) else None
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
        has_other_terms = settings.kl_loss_coef or self.settings.moe_aux_loss_coeff
        if not has_other_terms and not bool((weights * advantages).any()):
            return live, metrics | {"actor/skipped": 1.0}
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
        return before, metrics | {"actor/skipped": 0.0}

    def _samplers(self, batch: Batch, *, least_lag: int, most_lag: int | None) -> tuple[int, ...]:
        """The versions that sampled the trainable tokens, oldest first. One that lags as expected, or with `most_lag`
        any number of them within the two bounds."""
        versions = np.unique(batch.weight_versions[batch.loss_mask.astype(bool)]).tolist()
        if most_lag is None:
            assert len(versions) == 1, f"trainable tokens of versions {versions} in one batch, expected one"
            lag = self.version - versions[0]
            assert lag == least_lag, (
                f"the batch was sampled by version {versions[0]}, {lag} behind {self.version}; expected {least_lag}"
            )
        lags = [self.version - version for version in versions]
        assert least_lag <= min(lags) and (most_lag is None or max(lags) <= most_lag), (
            f"the batch was sampled by versions {versions}, {min(lags)} to {max(lags)} behind {self.version}; "
            f"expected {least_lag} to {most_lag}"
        )
        return tuple(versions)

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
            per_token={name: nothing for name in PER_TOKEN[self.settings.advantage]},
            timings_s=watch.seconds,
            cpu_s=time.process_time() - cpu_start,
        )

    def _put(self, batch: Batch, *, with_routes: bool) -> BatchStreams:
        return networks.put(self.settings, batch, device=self.device, with_routes=with_routes)

    def _role(self, role: Role) -> Learner:
        if role not in self.learners:
            raise ValueError(f"there is no {role}: advantage={self.settings.advantage!r} does without one")
        return self.learners[role]
