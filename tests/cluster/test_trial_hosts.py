"""Trials are spread over hosts, never above a host's cap, and cut where they are."""

import asyncio

from t1core.cluster.hosts import HostSlots, TrialHosts
from t1core.records import Task
from t1core.rollout.trial import TrialSpec

TASK = Task("t", "family", "train", None, "do", ("a",))


class Host:
    def __init__(self, name):
        self.name, self.running, self.peak, self.cuts = name, {}, 0, []

    async def run(self, spec):
        ended = self.running[spec.trial_id] = asyncio.get_running_loop().create_future()
        self.peak = max(self.peak, len(self.running))
        try:
            return await ended
        finally:
            del self.running[spec.trial_id]

    async def cut(self, trial_ids):
        self.cuts.append(trial_ids)


def slots(*hosts, cap):
    return TrialHosts([HostSlots(host.name, host.run, host.cut) for host in hosts], cap=cap)


def spec(i):
    return TrialSpec(f"s-{i}", TASK, step=0, attempt=0, sampling_seed=i)


async def until_running(hosts, n):
    while sum(len(host.running) for host in hosts) < n:
        await asyncio.sleep(0)


def test_each_host_gets_its_share_and_no_more_than_its_cap():
    async def run():
        hosts = Host("a"), Host("b"), Host("c")
        placing = slots(*hosts, cap=2)
        work = [asyncio.ensure_future(placing.launch(spec(i))) for i in range(10)]
        await until_running(hosts, 6)
        await asyncio.sleep(0.01)
        assert [len(host.running) for host in hosts] == [2, 2, 2] and placing.num_live == 6
        while not all(task.done() for task in work):
            for host in hosts:
                for future in list(host.running.values()):
                    if not future.done():
                        future.set_result("done")
            await asyncio.sleep(0)
        assert await asyncio.gather(*work) == ["done"] * 10
        assert [host.peak for host in hosts] == [2, 2, 2] and placing.num_live == 0

    asyncio.run(asyncio.wait_for(run(), 10))


def test_a_trial_that_ends_makes_room_where_it_was():
    async def run():
        a, b = Host("a"), Host("b")
        placing = slots(a, b, cap=1)
        work = [asyncio.ensure_future(placing.launch(spec(i))) for i in range(3)]
        await until_running((a, b), 2)
        b.running["s-1"].set_result("done")
        await asyncio.sleep(0.01)
        assert set(b.running) == {"s-2"} and set(a.running) == {"s-0"}
        await placing.cut(["s-2", "s-9"])
        assert (a.cuts, b.cuts) == ([["s-9"]], [["s-2", "s-9"]]), "one that waits may go to either"
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        assert placing.num_live == 0

    asyncio.run(asyncio.wait_for(run(), 10))


def test_a_trial_that_breaks_gives_its_room_back():
    async def run():
        host = Host("a")
        placing = slots(host, cap=1)
        first = asyncio.ensure_future(placing.launch(spec(0)))
        await until_running((host,), 1)
        host.running["s-0"].set_exception(RuntimeError("host lost"))
        assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], RuntimeError)
        second = asyncio.ensure_future(placing.launch(spec(1)))
        await until_running((host,), 1)
        host.running["s-1"].set_result("done")
        assert await second == "done"

    asyncio.run(asyncio.wait_for(run(), 10))
