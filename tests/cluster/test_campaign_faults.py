"""Faults at a chosen moment of a real campaign: at a publication, in a collective, for want of memory, under a clock
that jumps. Each step completes, or the run stops with the cause named and nothing left."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from running_campaign import RunningCampaign

from t1core.analysis.checks import check_run
from t1core.store import Run

START_S = 420.0  # about 25 s on an idle machine
# Runs `fault(part, arguments)` in the driver as a part is about to be called for the third time.
MOMENT = """
import os, signal
import ray
from t1core.cluster.part import Part
call, calls = Part.call, []
async def faulty(self, method, *arguments, **options):
    if (self.name, method) == (NAME, METHOD):
        calls.append(method)
        if len(calls) == 3:
            arguments = fault(self, arguments)
    return await call(self, method, *arguments, **options)
Part.call = faulty
"""
SIGNAL = """
def fault(part, arguments):
    os.kill(part.pid(), signal.NUMBER)
    return arguments
"""
TEAR = """
def fault(part, arguments):
    version, reference = arguments
    tensors = dict(ray.get(reference))
    name = min(tensors)
    torn = tensors[name].copy()
    torn.reshape(-1)[0] += 1
    return version, ray.put(tensors | {name: torn})
"""


def at(name, method, fault):
    return f"NAME, METHOD = {name!r}, {method!r}\n" + fault + MOMENT


def assert_nothing_left(campaign):
    assert campaign.alive() == [], "processes are left"
    assert list(campaign.box_root.glob("block-*/*")) == [], "boxes are left"
    assert campaign.shared_memory() == [], "shared memory is left"
    run = Run.open(campaign.run)
    assert run.trials("train")["trial_id"].is_unique
    os.close(Run.resume(campaign.run)._lock)  # raises where it is held


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "told"),
    [
        ("SIGKILL", "PartDied: engine 0 died during update_weights"),
        ("SIGSTOP", "PartSilent: engine 0 did not answer"),
    ],
)
def test_an_engine_that_is_gone_at_a_publication_ends_the_campaign_by_name(
    tmp_path, checkpoint, number, told
):
    prelude = at("engine 0", "update_weights", SIGNAL.replace("NUMBER", number))
    overrides = ("cluster.control_deadline_s=15.0",)
    with RunningCampaign(tmp_path, actor_path=checkpoint, overrides=overrides, prelude=prelude) as campaign:
        campaign.until_step(0, within_s=START_S)
        campaign.until_ended(within_s=300)
        status = campaign.status()
        assert status["state"] == "failed" and told in status["error"]
        run = Run.open(campaign.run)
        assert run.token_steps() == list(range(status["step"] + 1)), "what was trained is recorded"
        assert_nothing_left(campaign)


@pytest.mark.slow
def test_a_broadcast_that_fails_once_is_sent_again_and_the_campaign_goes_on(tmp_path, checkpoint):
    overrides = ("num_steps=3",)
    with RunningCampaign(
        tmp_path, actor_path=checkpoint, overrides=overrides, prelude=at("engine 0", "update_weights", TEAR)
    ) as campaign:
        campaign.until_ended(within_s=START_S)
        assert campaign.status()["state"] == "finished", campaign.said()
        assert "publication of weight version 2: engine 0 holds checksum" in campaign.said()
        run = Run.open(campaign.run)
        checks = check_run(
            run.metrics("train"), trials=run.trials(), num_critic_only_steps=1, max_staleness=1
        )
        assert [check.claim for check in checks if not check.holds] == []
        for name in ("quiesce", "transfer", "verify", "resume"):
            assert (run.metrics("train")[f"time/{name}_s"].dropna() >= 0).all(), name
        assert_nothing_left(campaign)


@pytest.mark.slow
def test_a_rank_that_hangs_in_a_collective_is_named_and_not_the_one_that_waits_for_it(tmp_path, checkpoint):
    overrides = ("train.data_parallel=2", "cluster.num_cpus=3", "cluster.control_deadline_s=15.0")
    prelude = at("trainer rank 1", "train_batch", SIGNAL.replace("NUMBER", "SIGSTOP"))
    with RunningCampaign(tmp_path, actor_path=checkpoint, overrides=overrides, prelude=prelude) as campaign:
        campaign.until_step(1, within_s=START_S)
        campaign.until_ended(within_s=300)
        status = campaign.status()
        assert status["state"] == "failed"
        assert "PartSilent: trainer rank 1 did not answer ping within 15 s" in status["error"]
        assert_nothing_left(campaign)


@pytest.mark.slow
def test_a_trainer_that_is_slow_but_gets_on_is_not_called_hung(tmp_path, checkpoint):
    overrides = ("num_steps=2", "cluster.progress_deadline_s=20.0", "train.max_tokens_per_gpu=1024")
    with RunningCampaign(tmp_path, actor_path=checkpoint, overrides=overrides) as campaign:
        campaign._wait(campaign.boxes, within_s=START_S, what="first boxes")
        trainer = campaign.part("TrainerActor")
        while campaign.driver.poll() is None and campaign.status()["step"] < 0:
            trainer.send_signal(signal.SIGSTOP)
            time.sleep(0.8)
            trainer.send_signal(signal.SIGCONT)
            time.sleep(0.1)
        campaign.until_ended(within_s=START_S)
        assert campaign.status()["state"] == "finished", campaign.said()
        assert_nothing_left(campaign)


def _memory_group():
    """A control group of 40 MB, where this machine lets us make one: (directory, remover)."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"t1-handoff-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(40 << 20))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        return group
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("EngineActor", "engine 0"), ("TrainerActor", "trainer rank 0")])
def test_a_part_that_finds_no_memory_at_the_hand_off_is_named_with_the_kernels_word(
    tmp_path, checkpoint, kind, name
):
    group = _memory_group()
    if group is None:
        pytest.skip("this machine lets us make no control group with a memory limit")
    try:
        with RunningCampaign(tmp_path, actor_path=checkpoint) as campaign:
            campaign.until_in_mid_step(within_s=START_S)
            part = campaign.part(kind)
            # What it holds stays counted where it was; what it asks for from now on has 40 MB.
            (group / "cgroup.procs").write_text(str(part.pid))
            campaign.until_ended(within_s=300)
            status = campaign.status()
            assert status["state"] == "failed" and f"PartDied: {name} died during" in status["error"]
            assert "for want of memory" in status["error"], status["error"]
            assert_nothing_left(campaign)
    finally:
        group.rmdir()


CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long jump(void) {
    const char *path = getenv("T1CORE_TEST_CLOCK");
    long seconds = 0;
    FILE *file = path ? fopen(path, "re") : NULL;
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
static int is_wall(clockid_t id) { return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE; }
int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && is_wall(id)) now->tv_sec += jump();
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) { now->tv_sec = exact.tv_sec; now->tv_usec = exact.tv_nsec / 1000; }
    return 0;
}
time_t time(time_t *kept) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (kept) *kept = exact.tv_sec;
    return exact.tv_sec;
}
"""


@pytest.fixture
def clock(tmp_path_factory):
    """A library that adds what a file says to the wall clock of a process, and leaves the monotonic one alone."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build a clock that jumps")
    place = tmp_path_factory.mktemp("clock")
    (place / "clock.c").write_text(CLOCK)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", place / "clock.so", place / "clock.c"], check=True
    )
    (place / "jump").write_text("0")
    return place


@pytest.mark.slow
def test_a_clock_that_jumps_by_days_ends_no_deadline_and_no_campaign(tmp_path, checkpoint, clock):
    env = {"LD_PRELOAD": str(clock / "clock.so"), "T1CORE_TEST_CLOCK": str(clock / "jump")}
    overrides = ("num_steps=4", "cluster.progress_deadline_s=600.0")
    with RunningCampaign(tmp_path, actor_path=checkpoint, overrides=overrides, **env) as campaign:
        for step, days in ((0, 3), (1, -5), (2, 1)):
            campaign.until_step(step, within_s=START_S)
            (clock / "jump").write_text(str(days * 86_400))
            assert Run.open(campaign.run).status().is_alive, "a living writer is taken for a dead one"
        campaign.until_ended(within_s=START_S)
        run = Run.open(campaign.run)
        assert run.status().state == "finished", campaign.said()
        metrics = run.metrics("train")
        stamps = run.metrics_long().groupby("step")["time"].max().sort_index()
        assert stamps.diff().abs().max() > 86_400, "the clock did not jump"
        assert (
            metrics["time/step_s"].between(0, 3600).all() and (metrics["time/rollout_s"].dropna() > 0).all()
        )
        assert metrics["rollout/failed"].sum() == 0
        timings = [turn for name in run.trials("train")["trial_id"] for turn in run.turns(name)["ended_s"]]
        assert all(0 <= seconds < 3600 for seconds in timings) and timings
        assert_nothing_left(campaign)
