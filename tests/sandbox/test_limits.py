"""Limits over a whole box: memory, files, and the state that processes share on the host."""

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from t1core.sandbox.doctor import probe
from t1core.sandbox.sandbox import BoxBroken
from t1core.sandbox.state import StateBlock
from tests.sandbox.boxes import in_sandbox, spec


def test_memory_is_summed_over_the_box_and_the_largest_process_goes():
    hold = "python3 -c 'import sys, time; b = bytearray(int(sys.argv[1]) << 20); time.sleep(4)'"

    async def run(sandbox):
        box = await sandbox.open(spec(memory_mb=200))
        done = await box.exec(
            f"{hold} 60 & a=$!; {hold} 150 & wait $!; echo $?; wait $a; echo $?", timeout_s=60
        )
        assert done.stdout == b"137\n0\n"

    in_sandbox(run)


def test_a_box_that_writes_too_much_ends_and_says_why():
    async def run(sandbox):
        box = await sandbox.open(spec("b3", storage_mb=20))
        await box.exec("echo done > /app/work", timeout_s=30)
        with pytest.raises(BoxBroken, match=r"b3 is gone: the box has written \d+ MB, its limit is 20 MB"):
            await box.exec(
                "for i in 1 2 3; do head -c 15M /dev/zero > /tmp/f$i; done; sleep 30", timeout_s=60
            )
        with pytest.raises(BoxBroken, match="its limit is 20 MB"):
            await box.exec("true", timeout_s=5)
        layer = await box.snapshot()
        assert (layer.directories["/app"] / "work").read_text() == "done\n"
        layer.close()

    in_sandbox(run)


def test_memory_file_systems_of_a_box_are_small():
    async def run(sandbox):
        box = await sandbox.open(spec())
        done = await box.exec(
            "for d in /dev/shm /run /var/tmp /dev\n"
            "do head -c 100M /dev/zero > $d/f; stat -c %s $d/f; rm -f $d/f; done",
            timeout_s=60,
        )
        sizes = [int(size) for size in done.stdout.split()]
        assert len(sizes) == 3  # /dev takes nothing
        assert max(sizes) <= 64 << 20

    in_sandbox(run)


def test_two_processes_never_share_a_block_and_a_dead_ones_is_taken_over(monkeypatch, tmp_path):
    tmp_path.chmod(0o755)
    monkeypatch.setenv("T1CORE_BOX_DIR", str(tmp_path / "boxes"))
    program = (
        "import os, sys\nfrom t1core.sandbox.state import StateBlock\n"
        "block = StateBlock(); block.claim(); print(block.path.name, flush=True)\n"
        "sys.stdin.read(); os._exit(1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "block-0\n"
        mine = StateBlock()
        assert mine.path.name == "block-1"
        other.stdin.close()
        other.wait()
    assert (tmp_path / "boxes" / "block-0" / "0").is_dir()  # what it left
    taken = StateBlock()
    assert (taken.path.name, list(taken.path.iterdir())) == ("block-0", [])
    claim = taken.claim()
    assert claim.path != mine.claim().path
    claim.release()
    assert not claim.path.exists()
    for block in (taken, mine):
        block.close()
        assert not block.path.exists()


@pytest.fixture
def all_descriptors():
    """As many open files as this user may have: a plain user starts with fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def available_mb() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) / 1024


def host_traces(sandbox) -> dict[str, object]:
    """What boxes could leave on the host: descriptors, children, mounts, directories, processes of their uids."""
    me = os.getpid()
    first = sandbox._block.claim()
    first.release()
    uids = {first.uid - int(first.path.name) + slot for slot in range(1024)} if os.geteuid() == 0 else set()
    owners = [
        entry.stat().st_uid for entry in Path("/proc").iterdir() if entry.name.isdigit() and entry.exists()
    ]
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "children": Path(f"/proc/self/task/{me}/children").read_text().split(),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "directories": sorted(entry.name for entry in sandbox.state_path.iterdir()),
        "processes": sum(uid in uids for uid in owners),
    }


@pytest.mark.slow
def test_five_hundred_and_twelve_boxes_live_at_once(all_descriptors):
    if (found := probe()).num_boxes < 512:
        pytest.skip(f"this user may hold {found.num_boxes} boxes at once, limited by {found.limited_by}")

    async def run(sandbox):
        turns = asyncio.Semaphore(8)

        async def start(i: int):
            async with turns:
                return await sandbox.open(spec(f"b{i}"))

        async def use(i: int, box) -> None:
            async with turns:
                assert (await box.exec(f"echo {i} > n; cat n", timeout_s=120)).stdout == b"%d\n" % i
                terminal = await box.terminal()
                assert await terminal.send_keys("cat n\n", max_wait_s=120)
                assert (await terminal.screen()).splitlines()[-2] == str(i)

        async def end(box) -> None:
            async with turns:
                await box.close()

        await (await sandbox.open(spec())).close()
        await asyncio.sleep(0)
        before, free_mb = host_traces(sandbox), available_mb()
        boxes = await asyncio.gather(*(start(i) for i in range(512)))
        opened_mb = available_mb()
        await asyncio.gather(*(use(i, box) for i, box in enumerate(boxes)))
        used_mb = available_mb()
        print(
            f"\nMiB a box: {(free_mb - opened_mb) / 512:.2f} open, {(free_mb - used_mb) / 512:.2f} with terminal"
        )
        await asyncio.gather(*(end(box) for box in boxes))
        await asyncio.sleep(0)
        assert host_traces(sandbox) == before

    in_sandbox(run, within_s=3000)


@pytest.mark.slow
def test_nothing_leaks_over_two_thousand_boxes():
    async def run(sandbox):
        async def life(i: int) -> None:
            box = await sandbox.open(spec(f"b{i}"))
            await box.exec("echo x > f; (setsid sleep 300 &)", timeout_s=120)
            if i % 3 == 1:
                layer = await box.snapshot()
                assert (layer.directories["/app"] / "f").read_text() == "x\n"
                layer.close()
            if i % 3 == 2:  # cut short, at whatever it is doing
                closing = asyncio.create_task(box.snapshot())
                await asyncio.sleep(0.001 * (i % 7))
                closing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    (await closing).close()
            await box.close()

        await life(0)
        await asyncio.sleep(0)
        before = host_traces(sandbox)
        for start in range(0, 2000, 8):
            await asyncio.gather(*(life(start + i) for i in range(8)))
        await asyncio.sleep(0)
        assert host_traces(sandbox) == before

    in_sandbox(run, within_s=3000)
