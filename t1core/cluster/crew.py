"""The crew of one campaign: trainer ranks, an engine, a trial host, and the calls the controller makes of them.

Weights cross here: the trainer exports Hugging Face named arrays into the object store, every engine takes them from
there, and both sides' checksums must agree before generation goes on.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from t1core.cluster.actors import EngineActor, HostActor, TrainerActor
from t1core.cluster.deadlines import Deadlines
from t1core.cluster.hosts import HostSlots, TrialHosts
from t1core.cluster.part import Part, Watchdog
from t1core.cluster.session import host_nodes, placement, ray_session
from t1core.config import CampaignConfig
from t1core.model.shape import ModelShape
from t1core.records import Batch, Boundary, Generation, TrialInFlight
from t1core.rollout.engine import PauseMode
from t1core.rollout.route_probe import SESSION, probe_routes
from t1core.rollout.trial import TrialResult, TrialSpec
from t1core.sandbox.state import clear_abandoned
from t1core.train.result import TrainResult

_log = logging.getLogger(__name__)
_CLOSE_S = 20.0
_START_S = 300.0


@dataclass(frozen=True)
class Publication:
    """What one publication took, in seconds, and the checksum of what the engine now holds."""

    quiesce_s: float
    transfer_s: float
    verify_s: float
    resume_s: float = 0.0
    checksum: str = ""


@dataclass(frozen=True)
class CpuSeconds:
    """CPU seconds used so far, by part."""

    generate: float
    box: float
    train: float


class Crew:
    """Running parts. Use `start_crew`."""

    def __init__(
        self, config: CampaignConfig, trainers: list[Part], engine: Part, hosts: Sequence[Part]
    ) -> None:
        self._config = config
        self._deadlines = Deadlines.of(config)
        self._deadline_s = self._deadlines.control_s
        self.trainers = trainers
        self.engine = engine
        self.hosts = list(hosts)
        self._placing = TrialHosts(
            [HostSlots(host.name, partial(self._run, host), partial(self._cut, host)) for host in hosts],
            cap=config.rollout.max_live_trials,
        )
        self.engine_health: dict[str, Any] = {}
        self.trainer_health: list[dict[str, Any]] = []

    @property
    def parts(self) -> list[Part]:
        return [*self.trainers, self.engine, *self.hosts]

    def watchdog(self) -> Watchdog:
        cluster = self._config.cluster
        return Watchdog(
            self.parts,
            grace_s=cluster.probe_grace_s,
            period_s=cluster.probe_period_s,
            deadline_s=self._deadlines.control_s,
            progress_s=self._deadlines.progress_s,
        )

    async def launch(self, spec: TrialSpec) -> TrialResult:
        """Run one trial on the host with the most room, once there is any. A host that does not end it in time is
        silent."""
        return await self._placing.launch(spec)

    async def cut(self, trial_ids: list[str]) -> None:
        await self._placing.cut(trial_ids)

    async def live_trials(self) -> list[TrialInFlight]:
        """Where each trial in flight is, on any host."""
        answers = await asyncio.gather(
            *(host.call("live", deadline_s=self._deadline_s) for host in self.hosts)
        )
        return [trial for answer in answers for trial in answer]

    async def _run(self, host: Part, spec: TrialSpec) -> TrialResult:
        return await host.call("run_trial", spec, deadline_s=self._deadlines.launch_s)

    async def _cut(self, host: Part, trial_ids: list[str]) -> None:
        await host.call("cut", trial_ids, deadline_s=self._deadline_s)

    async def train(
        self,
        batch: Batch,
        *,
        update_actor: bool,
        expected_version_lag: int,
        max_version_lag: int | None = None,
    ) -> TrainResult:
        """One training step on every rank; rank 0 answers for all."""
        reference = ray.put(batch)
        results = await asyncio.gather(
            *(
                trainer.call(
                    "train_batch",
                    reference,
                    update_actor=update_actor,
                    expected_version_lag=expected_version_lag,
                    max_version_lag=max_version_lag,
                    deadline_s=None,
                )
                for trainer in self.trainers
            )
        )
        return results[0]

    async def publish(self, version: int, *, mode: PauseMode = "abort") -> Publication:
        """Bring the actor's weights to the engine as `version` and keep them as the behaviour snapshot.

        `mode` is what becomes of requests under way: ended, or frozen in place and gone on with. A transfer after which
        the engine's checksum differs from the trainer's is tried once more; RuntimeError when it still does.
        """
        began = time.monotonic()
        await self.engine.call("pause_generation", mode, deadline_s=self._deadline_s)
        quiesced = time.monotonic()
        dtype = self._config.rollout.engine_dtype
        exports = await asyncio.gather(
            *(t.call("export_actor", dtype, deadline_s=None) for t in self.trainers)
        )
        stored = await self._transfer(version, *exports[0])
        transferred = time.monotonic()
        await asyncio.gather(*(t.call("rotate", version, deadline_s=self._deadline_s) for t in self.trainers))
        verified = time.monotonic()
        await self.engine.call("continue_generation", deadline_s=self._deadline_s)
        return Publication(
            quiesce_s=quiesced - began,
            transfer_s=transferred - quiesced,
            verify_s=verified - transferred,
            resume_s=time.monotonic() - verified,
            checksum=stored,
        )

    async def _transfer(self, version: int, tensors: dict[str, Any], expected: str) -> str:
        """Have the engine take the weights; the checksum of what it holds, which is `expected`."""
        reference = ray.put(tensors)
        for is_last in (False, True):
            stored = await self.engine.call("update_weights", version, reference, deadline_s=None)
            if stored == expected:
                return stored
            told = (
                f"publication of weight version {version}: {self.engine.name} holds checksum {stored}, the trainer "
                f"exported {expected}; the engine's weights are not the trainer's"
            )
            if is_last:
                raise RuntimeError(told)
            _log.warning("%s; trying once more", told)
        raise AssertionError("unreachable")

    async def save_weights(self, directory: Path, role: str) -> None:
        """Write one role's weights as Hugging Face files."""
        await asyncio.gather(
            *(t.call("save_weights", str(directory), role, deadline_s=None) for t in self.trainers)
        )

    async def save_checkpoint(self, directory: Path, *, content: str) -> None:
        """Write a checkpoint ("exact") or only its weights ("weights")."""
        await asyncio.gather(
            *(t.call("save_checkpoint", str(directory), content, deadline_s=None) for t in self.trainers)
        )

    async def load_checkpoint(self, directory: Path) -> int:
        """Restore every rank. Returns the version under which to publish before anything is sampled."""
        versions = await asyncio.gather(
            *(t.call("load_checkpoint", str(directory), deadline_s=None) for t in self.trainers)
        )
        return versions[0]

    async def cpu_s(self) -> CpuSeconds:
        generate, *others = await asyncio.gather(
            *(
                part.call("cpu_s", deadline_s=self._deadline_s)
                for part in (self.engine, *self.hosts, *self.trainers)
            )
        )
        hosts, train = others[: len(self.hosts)], others[len(self.hosts) :]
        return CpuSeconds(generate=generate, box=sum(map(sum, hosts)), train=sum(train))

    async def memory_mb(self) -> dict[str, float]:
        """Resident memory by kind of part, MiB."""
        sizes = await asyncio.gather(
            *(part.call("memory_mb", deadline_s=self._deadline_s) for part in self.parts)
        )
        n = len(self.trainers)
        return {"trainer": sum(sizes[:n]), "engine": sizes[n], "host": sum(sizes[n + 1 :])}

    async def close(self) -> None:
        """Close boxes, then the engine. What that raises is logged: it must not hide why the campaign ends."""
        for part in (*self.hosts, self.engine):
            try:
                await part.call("close", deadline_s=min(_CLOSE_S, self._deadline_s))
            except Exception as error:
                _log.warning("closing %s: %s: %s", part.name, type(error).__name__, error)

    def kill(self) -> None:
        """End every process at once, also when one of them can't be told."""
        for part in self.parts:
            try:
                part.kill()
            except Exception as error:
                _log.warning("killing %s: %s: %s", part.name, type(error).__name__, error)


@contextlib.asynccontextmanager
async def start_crew(
    config: CampaignConfig, *, actor_path: Path, critic_path: Path | None, logs: Path
) -> AsyncIterator[Crew]:
    """Start Ray and every part; end them all on leaving, however that happens. Engines that are processes of their own
    write to a file in `logs`."""
    shape = ModelShape.from_hf(actor_path)
    cluster, train = config.cluster, config.train
    with contextlib.ExitStack() as stack:
        stack.callback(_clear_boxes)
        stack.enter_context(
            ray_session(
                address=cluster.address, num_cpus=cluster.num_cpus, object_store_mb=cluster.object_store_mb
            )
        )
        group = stack.enter_context(
            placement(
                num_train_ranks=train.num_ranks,
                num_engines=1,
                cpus=cluster.num_cpus,
                timeout_s=cluster.control_deadline_s,
            )
        )

        def place(actor_class: Any, bundle: int, **arguments: Any) -> ray.actor.ActorHandle:
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
            return actor_class.options(num_cpus=0, scheduling_strategy=strategy).remote(**arguments)

        def pinned(actor_class: Any, node: str) -> ray.actor.ActorHandle:
            strategy = NodeAffinitySchedulingStrategy(node, soft=False)
            return actor_class.options(num_cpus=0, scheduling_strategy=strategy).remote()

        trainers = [
            Part(f"trainer rank {rank}", place(TrainerActor, rank, rank=rank, world_size=train.num_ranks))
            for rank in range(train.num_ranks)
        ]
        engine = Part("engine 0", place(EngineActor, train.num_ranks), boundary=Boundary.ENGINE)
        hosts = [
            Part(f"trial host {n}", pinned(HostActor, node), boundary=Boundary.SANDBOX)
            for n, node in enumerate(
                host_nodes(group, num_train_ranks=train.num_ranks, num_hosts=cluster.num_hosts)
            )
        ]
        crew = Crew(config, trainers, engine, hosts)
        try:
            await _set_up(
                crew, config, shape=shape, actor_path=actor_path, critic_path=critic_path, logs=logs
            )
            yield crew
        finally:
            try:
                await crew.close()
            finally:
                crew.kill()


def _clear_boxes() -> None:
    """Remove what a killed trial host left on this node; other nodes clear theirs when their next host starts."""
    try:
        clear_abandoned()
    except OSError as error:
        _log.warning("boxes are left behind: %s", error)


async def _set_up(
    crew: Crew,
    config: CampaignConfig,
    *,
    shape: ModelShape,
    actor_path: Path,
    critic_path: Path | None,
    logs: Path,
) -> None:
    master = await crew.trainers[0].call("address", is_local=not config.cluster.address, deadline_s=_START_S)
    tree = config.model_dump(mode="json")
    paths = {"actor_path": str(actor_path), "critic_path": str(critic_path) if critic_path else None}
    host_settings = {
        "config": tree,
        "model_path": str(actor_path),
        "num_experts": shape.num_experts,
        "vocab_size": shape.vocab_size,
        "engine_name": crew.engine.name,
    }
    crew.engine_health, *others = await asyncio.gather(
        crew.engine.call(
            "setup",
            tree,
            model=str(actor_path),
            name=crew.engine.name,
            log_file=str((logs / "engine_0.log").absolute()),
            deadline_s=_START_S + config.rollout.sglang.start_deadline_s,
        ),
        *(
            host.call("setup", settings=host_settings, engine=crew.engine.actor, deadline_s=_START_S)
            for host in crew.hosts
        ),
        *(trainer.call("setup", tree, **paths, master=master, deadline_s=None) for trainer in crew.trainers),
    )
    crew.trainer_health = others[len(crew.hosts) :]
    if config.train.use_rollout_routing_replay:
        await _probe_routes(crew, shape=shape, deadline_s=Deadlines.of(config).control_s)


async def _probe_routes(crew: Crew, *, shape: ModelShape, deadline_s: float) -> None:
    async def generate(input_ids: Any, **request: Any) -> Generation:
        return await crew.engine.call("generate", input_ids, deadline_s=deadline_s, **request)

    await probe_routes(
        generate,
        engine=crew.engine.name,
        vocab_size=shape.vocab_size,
        num_layers=shape.num_layers,
        experts_per_token=shape.num_experts_per_tok,
        num_experts=shape.num_experts,
    )
    await crew.engine.call("release_session", SESSION, deadline_s=deadline_s)
