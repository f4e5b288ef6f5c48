"""A box's place on the host, its directory and its uid: taken once, given back once, whatever cuts in."""

import asyncio
import itertools
import os
import pickle
import signal
import socket
import time
from pathlib import Path

import pytest

from t1core.sandbox import bubblewrap_box
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.inbox import wire
from t1core.sandbox.outbox import Outbox
from t1core.sandbox.sandbox import BoxTimeout, SandboxUnavailable
from tests.sandbox.boxes import in_sandbox, processes_as, spec


def left_by(sandbox) -> list[str]:
    """What the sandbox keeps on the host beside its own files."""
    return [entry.name for entry in sandbox.state_path.iterdir() if entry.name != "etc"]


def test_more_boxes_in_turn_than_there_are_places():
    async def run(sandbox):
        for i in range(7):
            box = await sandbox.open(spec(f"b{i}"))
            layer = await box.snapshot()
            assert left_by(sandbox) == [layer.path.name]
            await box.close()
            layer.close()
            await (await sandbox.open(spec(f"c{i}"))).close()
        assert left_by(sandbox) == []

    in_sandbox(run, max_boxes=3)


def test_an_open_layer_keeps_its_place_and_too_many_are_refused():
    async def run(sandbox):
        layers = [await (await sandbox.open(spec(f"b{i}"))).snapshot() for i in range(2)]
        with pytest.raises(SandboxUnavailable, match="2 boxes and layers are open in this sandbox"):
            await sandbox.open(spec())
        layers[0].close()
        box = await sandbox.open(spec())
        assert box.path == layers[0].path
        layers[0].close()  # its place is another's by now
        assert (await box.exec("echo x > f; cat f", timeout_s=30)).stdout == b"x\n"
        with pytest.raises(SandboxUnavailable, match="are open in this sandbox"):
            await sandbox.open(spec())

    in_sandbox(run, max_boxes=2)


def test_closing_the_sandbox_frees_layers_and_a_late_close_harms_nobody():
    async def run() -> None:
        first = BubblewrapSandbox()
        layer = await (await first.open(spec())).snapshot()
        await first.close()
        assert not layer.path.exists()
        second = BubblewrapSandbox()
        try:
            assert second.state_path == first.state_path
            box = await second.open(spec())
            assert box.path == layer.path
            layer.close()
            assert (await box.exec("echo x > f; cat f", timeout_s=30)).stdout == b"x\n"
            with pytest.raises(ValueError, match="this sandbox is closed"):
                await first.open(spec())
        finally:
            await second.close()

    asyncio.run(run())


def test_a_place_is_free_only_when_nothing_runs_there_any_more():
    if os.geteuid() != 0:
        pytest.skip("a plain user has one uid for all boxes")

    async def run(sandbox):
        for _ in range(3):
            box = await sandbox.open(spec())
            await box.exec("for i in $(seq 60); do sleep 49.5 & done", timeout_s=30)
            os.kill(box._process.pid, signal.SIGKILL)
            os.waitid(
                os.P_PID, box._process.pid, os.WEXITED | os.WNOWAIT
            )  # its child can't be found any more
            layer = await box.snapshot()
            assert processes_as(layer.uid) == []
            layer.close()

    in_sandbox(run)


class CancelledAt:
    """Awaits `work`, and cancels the task that does so at its waits of the given numbers."""

    def __init__(self, work, numbers: tuple[int, ...]) -> None:
        self._work, self._numbers = work, numbers

    def __await__(self):
        steps = self._work.__await__()
        value, error = None, None
        for number in itertools.count(1):
            try:
                pending = steps.throw(error) if error is not None else steps.send(value)
            except StopIteration as end:
                return end.value
            if number in self._numbers:
                asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
            value, error = None, None
            try:
                value = yield pending
            except BaseException as caught:
                error = caught


@pytest.mark.parametrize("again", [(), (1,)], ids=["once", "twice"])
@pytest.mark.parametrize("way", ["close", "snapshot", "copy"])
def test_a_cancellation_at_any_wait_of_a_boxs_life_leaves_nothing(tmp_path, way, again):
    (tmp_path / "Dockerfile").write_text("FROM ubuntu:24.04\nRUN sleep 0.02\n")

    async def life(sandbox) -> None:
        box = await sandbox.open(spec(environment_dir=tmp_path))
        try:
            await box.exec("sleep 50.5 & sleep 0.02", timeout_s=30)
            if way != "close":
                layer = await getattr(box, way)()
                layer.close()
        finally:
            await box.close()

    async def run(sandbox):
        await life(sandbox)
        before = len(os.listdir("/proc/self/fd"))
        for number in itertools.count(1):
            work = CancelledAt(life(sandbox), (number, *(number + later for later in again)))
            (outcome,) = await asyncio.gather(as_coroutine(work), return_exceptions=True)
            async with asyncio.timeout(20):
                while sandbox._boxes:  # an end that was left alone finishes by itself
                    await asyncio.sleep(0.01)
            assert left_by(sandbox) == [], number
            assert len(sandbox._block._free) == 4, number
            if outcome is None:
                break
            assert isinstance(outcome, asyncio.CancelledError), outcome
        assert number > 4
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) == before
        if os.geteuid() == 0:
            (claim,) = [sandbox._block.claim()]
            assert processes_as(claim.uid) == []
            claim.release()

    in_sandbox(run, max_boxes=4)


async def as_coroutine(work):
    return await work


@pytest.mark.parametrize("is_late", [False, True])
def test_a_snapshot_cut_short_ends_in_the_box_being_closed(is_late):
    async def run(sandbox):
        box = await sandbox.open(spec())
        taking = asyncio.create_task(box.snapshot())
        await asyncio.sleep(0)
        if is_late:
            box._ending.add_done_callback(lambda _: taking.cancel())
        else:
            taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        await box.close()
        assert left_by(sandbox) == []
        assert not sandbox._boxes

    in_sandbox(run)


def test_closes_at_once_all_wait_for_the_end():
    async def run(sandbox):
        box = await sandbox.open(spec())
        closing = asyncio.create_task(box.close())
        await asyncio.sleep(0)
        await box.close()
        assert left_by(sandbox) == []
        assert box.cpu_s > 0
        await closing

    in_sandbox(run)


def test_a_box_that_takes_no_orders_holds_up_nobody_else(monkeypatch):
    monkeypatch.setattr(bubblewrap_box, "CONTROL_DEADLINE_S", 0.5)
    large = {f"V{i}": "x" * 100_000 for i in range(10)}

    async def run(sandbox):
        stuck, other = [await sandbox.open(spec(f"b{i}")) for i in range(2)]
        await other.exec("true", timeout_s=30)
        before = len(os.listdir("/proc/self/fd"))
        pid = stuck._process.pid
        (control,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        os.kill(control, signal.SIGSTOP)
        started = time.monotonic()
        waiting = asyncio.create_task(stuck.exec("true", timeout_s=2, env=large))
        await asyncio.sleep(0)
        assert time.monotonic() - started < 2
        assert (await other.exec("echo here", timeout_s=30)).stdout == b"here\n"
        with pytest.raises(BoxTimeout, match="b0: a command was not killed within"):
            await waiting
        os.kill(control, signal.SIGCONT)
        done = await stuck.exec('echo "back ${#V9}"', timeout_s=30, env=large)
        assert done.stdout == b"back 100000\n"
        assert len(os.listdir("/proc/self/fd")) == before
        os.kill(control, signal.SIGSTOP)
        await stuck.close()

    in_sandbox(run)


def test_an_outbox_never_waits_keeps_the_order_and_passes_descriptors():
    messages = [bytes([65 + i]) * 200_000 for i in range(5)]

    async def run() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setblocking(False)
        outbox = Outbox(ours)
        read, write = os.pipe()
        started = time.monotonic()
        for message in messages:
            outbox.send(message, fds=(write,))
        assert time.monotonic() - started < 5
        os.close(write)
        assembler, received, descriptors = wire.Assembler(), [], []
        async with asyncio.timeout(20):
            while len(received) < len(messages):
                try:
                    frame, fds, _, _ = socket.recv_fds(theirs, wire.FRAME_BYTES + 1, 2)
                except BlockingIOError:
                    await asyncio.sleep(0.001)
                    continue
                descriptors += fds
                if (message := assembler.add(frame)) is not None:
                    received.append(message)
                    assert len(descriptors) == len(received)
        assert received == messages
        os.write(descriptors[-1], b"x")
        assert os.read(read, 2) == b"x"
        theirs.close()
        with pytest.raises(OSError):
            outbox.send(b"late")
        outbox.close()
        ours.close()
        for fd in (read, *descriptors):
            os.close(fd)

    asyncio.run(run())


def test_what_this_machine_lacks_can_be_told_by_another_process():
    told = pickle.loads(pickle.dumps(SandboxUnavailable("tmux is not installed", fix="apt-get install tmux")))
    assert (told.missing, told.fix) == ("tmux is not installed", "apt-get install tmux")
    assert str(told) == "tmux is not installed. Fix: apt-get install tmux"
