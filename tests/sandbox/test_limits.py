"""Limits over a whole box: memory, files, and the state that processes share on the host."""

import asyncio
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from t1core.sandbox.doctor import probe
from t1core.sandbox.sandbox import BoxDied
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
        with pytest.raises(BoxDied, match=r"b3 is gone: the box has written \d+ MB, its limit is 20 MB"):
            await box.exec(
                "for i in 1 2 3; do head -c 15M /dev/zero > /tmp/f$i; done; sleep 30", timeout_s=60
            )
        await box.close()

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


@pytest.mark.slow
def test_five_hundred_and_twelve_boxes_live_at_once(all_descriptors):
    if (found := probe()).num_boxes < 512:
        pytest.skip(f"this user may hold {found.num_boxes} boxes at once, limited by {found.limited_by}")

    async def run(sandbox):
        turns = asyncio.Semaphore(8)

        async def start(i: int):
            async with turns:
                box = await sandbox.open(spec(f"b{i}"))
                terminal = await box.terminal()
                assert await terminal.send_keys(f"echo {i} > n\n", max_wait_s=60)
                return box, terminal

        async def use(i: int, box, terminal) -> None:
            async with turns:
                assert await terminal.send_keys("cat n\n", max_wait_s=60)
                assert (await terminal.screen()).splitlines()[-2] == str(i)
                await box.close()

        alive = await asyncio.gather(*(start(i) for i in range(512)))
        await asyncio.gather(*(use(i, *pair) for i, pair in enumerate(alive)))

    in_sandbox(run, within_s=900)


@pytest.mark.slow
def test_nothing_leaks_over_two_thousand_boxes():
    async def run(sandbox):
        async def life(i: int) -> None:
            box = await sandbox.open(spec(f"b{i}"))
            await box.exec("echo x > f", timeout_s=60)
            if i % 2:
                layer = await box.snapshot()
                assert (layer.directories["/app"] / "f").read_text() == "x\n"
                layer.close()
            await box.close()

        await life(0)
        await asyncio.sleep(0)
        before = len(os.listdir("/proc/self/fd"))
        for start in range(0, 2000, 8):
            await asyncio.gather(*(life(start + i) for i in range(8)))
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) == before
        assert [entry.name for entry in sandbox.state_path.iterdir()] == ["etc"]
        assert str(sandbox.state_path) not in Path("/proc/self/mountinfo").read_text()

    in_sandbox(run, within_s=900)
