"""The trial hosts of a campaign: each trial goes to the host with the most room, and never above a host's cap.

Every trial, of training and of evaluation, is launched here, so that the cap holds for both together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from t1core.rollout.trial import TrialResult, TrialSpec

Run = Callable[[TrialSpec], Awaitable[TrialResult]]
Cut = Callable[[list[str]], Awaitable[None]]


@dataclass
class HostSlots:
    """One host as the controller sees it: the ways to run and to cut a trial there, and what is alive."""

    name: str
    run: Run
    cut: Cut
    live: set[str] = field(default_factory=set)


class TrialHosts:
    """Places trials on hosts, first come, first served. `cap`: trials alive at once on a host."""

    def __init__(self, hosts: Sequence[HostSlots], *, cap: int) -> None:
        assert hosts and cap >= 1
        self.hosts = list(hosts)
        self._cap = cap
        self._room = asyncio.Semaphore(cap * len(hosts))

    @property
    def num_live(self) -> int:
        return sum(len(host.live) for host in self.hosts)

    async def launch(self, spec: TrialSpec) -> TrialResult:
        """Run a trial on the host with the fewest live ones, once there is room."""
        async with self._room:
            host = min(self.hosts, key=lambda host: len(host.live))
            assert len(host.live) < self._cap, (
                f"{host.name} has {len(host.live)} trials, of {self._cap} at most"
            )
            host.live.add(spec.trial_id)
            try:
                return await host.run(spec)
            finally:
                host.live.discard(spec.trial_id)

    async def cut(self, trial_ids: Sequence[str]) -> None:
        """Cut trials where they are. All hosts are told of one that still waits for room, since any may get it."""
        placed = {trial_id for host in self.hosts for trial_id in host.live}
        waiting = [trial_id for trial_id in trial_ids if trial_id not in placed]
        told = [(host, [i for i in trial_ids if i in host.live] + waiting) for host in self.hosts]
        await asyncio.gather(*(host.cut(ids) for host, ids in told if ids))
