"""Kills for want of memory are named: from the kernel's counters and, where it may be read, its log."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from t1core.cluster.out_of_memory import OutOfMemory, killed_processes

LOG = (
    "6,1,2,-;Memory cgroup out of memory: Killed process 812 (ray::TrainerAct) total-vm:1kB, anon-rss:1kB\n"
    "6,1,3,-;eth0: link up\n"
    "3,1,4,-;Out of memory: Killed process 913 (python) total-vm:1kB\n"
)


def test_a_kill_is_told_with_its_process(tmp_path):
    counter, log = tmp_path / "memory.events", tmp_path / "kmsg"
    counter.write_text("low 0\noom 3\noom_kill 3\noom_group_kill 0\n")
    log.write_text(LOG)
    watch = OutOfMemory(counters=(counter, tmp_path / "missing"), kernel_log=log)
    assert watch.told() == ""
    counter.write_text("low 0\noom 4\noom_kill 4\noom_group_kill 0\n")
    assert watch.told().endswith("killed 1 process for want of memory since the campaign began: python (913)")
    counter.write_text("oom_kill 5\n")
    assert "2 processes" in watch.told() and "ray::TrainerAct (812), python (913)" in watch.told()


def test_without_a_log_the_kill_is_told_all_the_same(tmp_path):
    counter = tmp_path / "vmstat"
    counter.write_text("pgfault 9\noom_kill 0\n")
    watch = OutOfMemory(counters=(counter,), kernel_log=tmp_path / "missing")
    counter.write_text("pgfault 9\noom_kill 1\n")
    assert watch.told() == "the kernel killed 1 process for want of memory since the campaign began"


def test_the_log_names_processes_with_odd_names():
    assert killed_processes(LOG) == [(812, "ray::TrainerAct"), (913, "python")]
    assert killed_processes("nothing") == []


def _cgroup() -> Path | None:
    """A control group of our own with a memory limit, where this machine lets us make one."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"t1-oom-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(64 << 20))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        return group
    return None


def test_a_process_that_really_outgrew_its_memory_is_counted():
    group = _cgroup()
    if group is None:
        pytest.skip("this machine lets us make no control group with a memory limit")
    greedy = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); held = b'1' * (256 << 20)"
    try:
        watch = OutOfMemory()
        done = subprocess.run([sys.executable, "-c", greedy, str(group / "cgroup.procs")], check=False)
        if done.returncode != -9:
            pytest.skip(f"the limit was not enforced here: the process ended with {done.returncode}")
        assert "killed 1 process for want of memory" in watch.told()
    finally:
        group.rmdir()
