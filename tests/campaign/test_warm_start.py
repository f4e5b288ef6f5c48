"""The supervised phase ends with the process that runs it, and says which of its own processes was killed."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest


@pytest.fixture
def preparing(tmp_path, pool):
    """`t1 prepare` in its own session, and the processes of its supervised phase as soon as they are there."""
    log = tmp_path / "log"
    words = ["--set", "warm_start.supervised_steps=100000", "--set", "cluster.min_free_memory_mb=500"]
    with log.open("w") as file:
        command = subprocess.Popen(
            [sys.executable, "-m", "t1core.cli", "prepare", "smoke", "--set", f"tasks.pool={pool}", *words],
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"T1CORE_HOME": str(tmp_path / "home")},
        )  # fmt: skip
    family = []
    deadline = time.monotonic() + 600
    try:
        while len(family) < 3:  # two ranks and the tracker of their semaphores
            assert command.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
            family = psutil.Process(command.pid).children(recursive=True)
        yield command, family, log
    finally:
        command.kill()
        command.wait()
        for process in family:
            if process.is_running():
                process.kill()


def ranks(family):
    return [process for process in family if "--multiprocessing-fork" in process.cmdline()]


def ended(command, family, log):
    """What it returned and said, once nothing of it runs and nothing half made is left."""
    code = command.wait(300)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert [process.cmdline() for process in alive] == []
    home = log.parent / "home"
    assert [path.name for path in home.iterdir() if path.is_dir()] == []
    return code, log.read_text()


def test_a_signal_to_the_preparing_process_alone_ends_its_ranks_too(preparing):
    command, family, log = preparing
    assert len(ranks(family)) == 2
    os.kill(command.pid, signal.SIGINT)
    code, said = ended(command, family, log)
    assert code == 130
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_killed_rank_is_named_with_the_way_out_and_the_others_end(preparing):
    command, family, log = preparing
    ranks(family)[1].kill()
    code, said = ended(command, family, log)
    assert code == 2
    assert "t1: process 1 of the warm start's 2 was killed, perhaps for want of memory: free some" in said
    assert "Traceback" not in said
