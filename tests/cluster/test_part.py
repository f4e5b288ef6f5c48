"""Calls to parts in other processes, over a real Ray: what an error says, and who is named."""

import asyncio
import socket
import time

import psutil
import pytest
import ray

from t1core.cluster import PartDied, PartSilent, guarded
from t1core.cluster.actors import EngineActor, HostActor, TrainerActor
from t1core.cluster.hosting import EngineSilent, RemoteEngine
from t1core.cluster.part import Part, Progress, Watchdog
from t1core.records import Boundary
from t1core.rollout.engine import EngineDead, EngineRefused

pytestmark = pytest.mark.usefixtures("ray_running")


@ray.remote(num_cpus=0, max_concurrency=8)
class Fragile:
    """Breaks as told."""

    def __init__(self):
        self.progress = Progress(None, 0)

    async def ping(self):
        return self.progress

    async def set_progress(self, call, count):
        self.progress = Progress(call, count)

    async def raises(self, error):
        raise error

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)

    async def die(self):
        import os

        os._exit(1)

    async def generate(self, input_ids, **request):
        raise EngineRefused("too long")

    async def abort_request(self, request_id):
        await asyncio.sleep(60)


@pytest.fixture(scope="module")
def fragile(ray_running):
    part = Part("engine 7", Fragile.remote())
    asyncio.run(part.call("ping", deadline_s=60.0))
    yield part
    part.kill()


def call(part, method, *arguments, deadline_s=30.0):
    return asyncio.run(part.call(method, *arguments, deadline_s=deadline_s))


@pytest.mark.parametrize("deadline_s", [None, 30.0])
def test_a_timeout_raised_over_there_is_not_taken_for_our_deadline(fragile, deadline_s):
    with pytest.raises(TimeoutError, match="theirs") as caught:
        call(fragile, "raises", TimeoutError("theirs"), deadline_s=deadline_s)
    assert not isinstance(caught.value, PartSilent)


def test_an_error_of_a_part_keeps_its_type_and_names_the_part(fragile):
    with pytest.raises(EngineRefused, match=r"^too long") as caught:
        call(fragile, "raises", EngineRefused("too long"))
    assert type(caught.value) is EngineRefused
    assert caught.value.__notes__ == ["raised by engine 7 in raises"]


def test_a_part_that_does_not_answer_is_named_with_the_deadline(fragile):
    with pytest.raises(PartSilent, match=r"engine 7 did not answer sleep within 0.3 s"):
        call(fragile, "sleep", 60, deadline_s=0.3)


def test_a_part_that_dies_is_named():
    part = Part("engine 8", Fragile.remote(), boundary=Boundary.ENGINE)
    with pytest.raises(PartDied, match="engine 8 died during die") as caught:
        call(part, "die")
    assert caught.value.boundary is Boundary.ENGINE


@pytest.mark.parametrize("kind", [EngineActor, HostActor, TrainerActor])
def test_a_part_that_was_killed_is_never_started_again_without_its_state(kind):
    arguments = {"rank": 0, "world_size": 1} if kind is TrainerActor else {}
    part = Part("part 5", kind.options(num_cpus=0).remote(**arguments))
    process = psutil.Process(part.pid())
    # As a process that dies by itself: Ray may start it again where it is allowed to.
    ray.kill(part.actor, no_restart=False)
    process.wait(60)
    for _ in range(2):
        with pytest.raises(PartDied, match="part 5 died during ping"):
            call(part, "ping")


def test_a_host_whose_setup_failed_closes_without_an_error_of_its_own():
    part = Part("trial host 3", HostActor.options(num_cpus=0).remote())
    with pytest.raises(ValueError, match="no_such"):
        asyncio.run(part.call("setup", settings={"config": {"no_such": 1}}, engine=None, deadline_s=60.0))
    call(part, "close")
    part.kill()


def test_a_control_call_to_a_silent_engine_ends_and_a_refusal_keeps_its_type(fragile):
    engine = RemoteEngine(fragile.actor, control_deadline_s=0.3)
    with pytest.raises(EngineSilent, match=r"abort_request within 0.3 s"):
        asyncio.run(engine.abort_request("r"))
    assert issubclass(EngineSilent, EngineDead)
    with pytest.raises(EngineRefused, match=r"^too long$"):
        asyncio.run(engine.generate([1]))


def test_the_port_of_the_rendezvous_is_held_until_it_is_used():
    import torch.distributed as dist

    part = Part("trainer rank 0", TrainerActor.options(num_cpus=0).remote(rank=0, world_size=1))
    host, port = asyncio.run(part.call("address", is_local=True, deadline_s=60.0))
    assert host == "127.0.0.1"
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("", port))
    dist.TCPStore(host, port, 1, is_master=True, wait_for_workers=False)
    host, _ = asyncio.run(part.call("address", is_local=False, deadline_s=60.0))
    assert host == ray.util.get_node_ip_address()
    part.kill()


def watchdog(part, **changes):
    values = {"grace_s": 0.0, "period_s": 0.05, "deadline_s": 5.0} | changes
    return Watchdog([part], **values)


def test_a_call_that_does_not_get_on_is_silence(fragile):
    call(fragile, "set_progress", "train_batch", 3)
    began = time.monotonic()
    with pytest.raises(PartSilent, match="engine 7 has not got on with train_batch"):
        asyncio.run(asyncio.wait_for(watchdog(fragile, progress_s=0.5).watch(), 20))
    assert time.monotonic() - began > 0.5


def test_no_call_in_flight_is_not_silence_nor_is_one_that_gets_on(fragile):
    async def get_on():
        for count in range(20):
            await fragile.call("set_progress", "train_batch", count, deadline_s=5.0)
            await asyncio.sleep(0.1)
        await fragile.call("set_progress", None, 20, deadline_s=5.0)
        await asyncio.sleep(1.5)
        return "done"

    assert asyncio.run(guarded(get_on(), watchdog(fragile, progress_s=1.0))) == "done"


def test_work_that_fails_because_a_part_is_gone_ends_with_the_parts_name():
    part = Part("engine 9", Fragile.remote())

    async def work():
        with pytest.raises(PartDied):
            await part.call("die", deadline_s=30.0)
        raise RuntimeError("none of the trials is usable")

    with pytest.raises(PartDied, match="engine 9") as caught:
        asyncio.run(guarded(work(), watchdog(part, grace_s=60.0)))
    assert "usable" in str(caught.value.__cause__)


def test_work_that_fails_by_itself_ends_with_its_own_error(fragile):
    async def work():
        raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match=r"^ours$"):
        asyncio.run(guarded(work(), watchdog(fragile, grace_s=60.0)))


def test_work_that_never_finishes_its_clean_up_is_left_behind(fragile):
    call(fragile, "set_progress", "train_batch", -1)
    ended = asyncio.Event()

    async def stubborn():
        try:
            await asyncio.sleep(60)
        finally:
            while not ended.is_set():
                try:
                    await ended.wait()
                except asyncio.CancelledError:
                    continue

    async def end_of_it():
        began = time.monotonic()
        with pytest.raises(PartSilent, match="train_batch"):
            await guarded(stubborn(), watchdog(fragile, progress_s=0.2, deadline_s=2.0))
        took_s = time.monotonic() - began
        ended.set()
        return took_s

    assert 4.0 <= asyncio.run(end_of_it()) < 30.0
