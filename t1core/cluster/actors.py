"""The processes of a campaign as Ray actors: thin shells over an engine, a trial host, a trainer rank.

Heavy libraries are imported inside the actor, so that the driver stays light.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from t1core.cluster.part import Progress
from t1core.records import Batch, Generation, TrialInFlight
from t1core.rollout.trial import TrialResult, TrialSpec, host_cpu_s

_WARM_UP_TOKENS = 4096


def _tie_to_parent() -> None:
    """Have the kernel end this process when its parent (the raylet) dies, however it dies."""
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)


class _Process:
    def __init__(self) -> None:
        _tie_to_parent()

    def pid(self) -> int:
        return os.getpid()

    def memory_mb(self) -> float:
        """Resident memory of this process, MiB."""
        import psutil

        return psutil.Process().memory_info().rss / 2**20


@ray.remote(max_concurrency=1024, max_restarts=0)
class EngineActor(_Process):
    """Hosts one inference engine."""

    def __init__(self) -> None:
        super().__init__()
        self._engine: Any = None

    async def setup(self, config: dict[str, Any], *, model: str, name: str, log_file: str) -> dict[str, Any]:
        """Start the engine of the configuration, and answer with its first health."""
        from t1core.cluster.engines import start_engine
        from t1core.config import CampaignConfig

        self._engine = await start_engine(
            CampaignConfig.model_validate(config), model=Path(model), name=name, log_file=Path(log_file)
        )
        return await self._engine.health()

    async def ping(self) -> dict[str, Any]:
        return await self._engine.health()

    async def generate(self, input_ids, **request: Any) -> Generation:
        return await self._engine.generate(input_ids, **request)

    async def abort_request(self, request_id: str) -> bool:
        return await self._engine.abort_request(request_id)

    async def release_session(self, session_id: str) -> None:
        await self._engine.release_session(session_id)

    async def pause_generation(self, mode: str) -> None:
        await self._engine.pause_generation(mode)

    async def continue_generation(self) -> None:
        await self._engine.continue_generation()

    async def update_weights(self, version: int, tensors: dict[str, Any]) -> str:
        return await self._engine.update_weights(version, tensors)

    async def cpu_s(self) -> float:
        """CPU seconds of this process and of those it started."""
        return time.process_time() + sum(used.user + used.system for used in self._of_children("cpu_times"))

    async def memory_mb(self) -> float:
        """Resident memory of this process and of those it started, MiB; what they share counts for each."""
        return super().memory_mb() + sum(used.rss for used in self._of_children("memory_info")) / 2**20

    @staticmethod
    def _of_children(what: str) -> list[Any]:
        import psutil

        found = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(getattr(process, what)())
        return found

    async def close(self) -> None:
        """End the engine; nothing to do when the setup did not come that far."""
        if self._engine is not None:
            await self._engine.close()


@ray.remote(max_concurrency=1024, max_restarts=0)
class HostActor(_Process):
    """Hosts trials: boxes, agent loops and graders of one node."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = self._sandbox = self._grader = None

    async def setup(self, *, settings: dict[str, Any], engine: Any) -> None:
        from t1core.cluster.hosting import RemoteEngine, make_runner
        from t1core.config import CampaignConfig

        config = CampaignConfig.model_validate(settings["config"])
        remote = RemoteEngine(engine, control_deadline_s=config.cluster.control_deadline_s)
        self._runner, self._sandbox, self._grader = await make_runner(settings, remote)

    async def ping(self) -> int:
        return len(asyncio.all_tasks())

    async def live(self) -> list[TrialInFlight]:
        """The trials in flight; none before the setup is over."""
        return self._runner.live() if self._runner is not None else []

    async def run_trial(self, spec: TrialSpec) -> TrialResult:
        return await self._runner.run(spec)

    async def cut(self, trial_ids: list[str]) -> None:
        await self._runner.cut(trial_ids)

    async def cpu_s(self) -> tuple[float, float]:
        """This process's CPU seconds, and those of its ended children."""
        return host_cpu_s()

    async def close(self) -> None:
        """End graders and boxes; nothing to do when the setup did not come that far."""
        try:
            if self._grader is not None:
                await self._grader.close()
        finally:
            if self._sandbox is not None:
                await self._sandbox.close()


@ray.remote(max_restarts=0, concurrency_groups={"control": 2})
class TrainerActor(_Process):
    """One rank of the trainer; actor and critic take turns in it."""

    def __init__(self, *, rank: int, world_size: int) -> None:
        super().__init__()
        self._rank = rank
        self._world_size = world_size
        self._progress = Progress(None, 0)
        self._held_port: socket.socket | None = None

    @ray.method(concurrency_group="control")
    def ping(self) -> Progress:
        """Answered beside the work, so it tells how far the work is: a stuck collective still answers."""
        return self._progress

    @contextlib.contextmanager
    def _working(self, call: str) -> Iterator[None]:
        self._progress = Progress(call, self._progress.count + 1)
        try:
            yield
        finally:
            self._progress = Progress(None, self._progress.count + 1)

    def _advance(self, *_: Any) -> None:
        self._progress = Progress(self._progress.call, self._progress.count + 1)

    @ray.method(concurrency_group="control")
    def address(self, *, is_local: bool) -> tuple[str, int]:
        """An address of this node and a port for the process group's rendezvous.

        The port stays bound until `setup` is over: nobody else is given it, and the rendezvous, which reuses
        addresses, can still listen on it.
        """
        host = "127.0.0.1" if is_local else ray.util.get_node_ip_address()
        self._held_port = socket.socket()
        self._held_port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held_port.bind(("", 0))
        return host, self._held_port.getsockname()[1]

    def setup(
        self, config: dict[str, Any], *, actor_path: str, critic_path: str | None, master: tuple[str, int]
    ) -> dict[str, Any]:
        """Build the rank's networks and, on a GPU, have their kernels compiled. Answers with `kernels`, which compute
        them and why, and `warm_up_s`, the seconds that compiling took, by role."""
        os.environ |= {
            "MASTER_ADDR": master[0],
            "MASTER_PORT": str(master[1]),
            "RANK": str(self._rank),
            "WORLD_SIZE": str(self._world_size),
        }
        from t1core.cluster.training import train_settings
        from t1core.config import CampaignConfig
        from t1core.train.trainer import Trainer

        settings = train_settings(
            CampaignConfig.model_validate(config), actor_path=actor_path, critic_path=critic_path
        )
        self._trainer = Trainer(settings)
        self._trainer.setup()
        if self._held_port is not None:
            self._held_port.close()
        for learner in self._trainer.learners.values():
            learner.model.register_forward_hook(self._advance)
        warm_up_s: dict[str, float] = {}
        if self._trainer.device.type != "cpu":
            with self._working("warm_up"):
                num_tokens = min(_WARM_UP_TOKENS, settings.max_tokens_per_gpu)
                warm_up_s |= self._trainer.warm_up(num_tokens=num_tokens)
        return {"kernels": str(self._trainer.actor.kernels), "warm_up_s": warm_up_s}

    def train_batch(self, batch: Batch, **options: Any) -> Any:
        with self._working("train_batch"):
            result = self._trainer.train_batch(batch, **options)
        return result if self._rank == 0 else None

    def export_actor(self, dtype: str) -> tuple[dict[str, Any], str]:
        """The actor's weights under Hugging Face names (rank 0; empty elsewhere), and their checksum as `dtype`."""
        import torch

        from t1core.model.checksum import weight_checksum

        with self._working("export_actor"):
            tensors = self._trainer.export_actor()
        return tensors, weight_checksum(tensors, dtype=getattr(torch, dtype))

    def rotate(self, version: int) -> None:
        self._trainer.rotate(version)

    def save_weights(self, directory: str, role: str) -> None:
        with self._working("save_weights"):
            self._trainer.save_weights(Path(directory), role)

    def save_checkpoint(self, directory: str, content: str) -> None:
        with self._working("save_checkpoint"):
            self._trainer.save_checkpoint(Path(directory), content=content)

    def load_checkpoint(self, directory: str) -> int:
        """The weight version under which the restored actor must be published."""
        with self._working("load_checkpoint"):
            version = self._trainer.load_checkpoint(Path(directory))
        return version if self._trainer.is_published else version + 1

    @ray.method(concurrency_group="control")
    def cpu_s(self) -> float:
        return time.process_time()
