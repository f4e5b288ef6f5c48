"""Ctrl-C and SIGTERM end a campaign wherever it is: 130, status interrupted, no process and no box left."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from t1core.store import Run
from t1core.train.checkpoint_directory import newest_whole


@pytest.fixture
def box_root():
    """A directory that boxes, which run as another uid, can reach."""
    directory = Path(tempfile.mkdtemp(prefix="t1-boxes-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def in_session(session):
    """Living processes of a session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.Error):
            pass
    return found


@contextlib.contextmanager
def running(words, log, box_root, **env):
    """The campaign as a process of its own, in a session of its own; whatever happens, all of it is gone afterwards."""
    with log.open("w") as file:
        campaign = subprocess.Popen(
            [sys.executable, "-m", "t1core.cli", "campaign", "smoke", "--run-name", "r", *words],
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"T1CORE_BOX_DIR": str(box_root)} | env,
        )  # fmt: skip
    try:
        yield campaign
    finally:
        for process in in_session(campaign.pid):
            process.kill()
        campaign.kill()
        campaign.wait()


def until(condition, campaign, log):
    deadline = time.monotonic() + 600
    while not condition():
        assert campaign.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.05)


def assert_ends(campaign, number, log, box_root):
    """After the signal it ends with 130, and none of its processes and boxes is left."""
    family = psutil.Process(campaign.pid).children(recursive=True) + in_session(campaign.pid)
    os.kill(campaign.pid, number)
    try:
        assert campaign.wait(120) == 130, log.read_text()[-2000:]
        _, alive = psutil.wait_procs(family, timeout=20)
        assert [" ".join(process.cmdline())[:100] for process in alive] == []
        assert in_session(campaign.pid) == []
        assert list(box_root.glob("block-*/*")) == []
        assert "Traceback" not in log.read_text()
    finally:
        for process in family:
            if process.is_running():
                process.kill()


SETTINGS = (
    "num_steps=200", "evaluation.tasks_per_split=1", "agent.max_turns=1", "agent.max_new_tokens=32",
    "rollout.rollout_batch_size=2", "rollout.over_sampling_batch_size=2",
)  # fmt: skip


@pytest.mark.parametrize(
    ("number", "when", "overrides"),
    [
        (signal.SIGINT, "held out", ()),
        (signal.SIGTERM, "starting trainer", ()),
        pytest.param(signal.SIGTERM, "step   1/", (), marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "starting trainer", (), marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, ".step_0001.partial", ("checkpoint_every=1",), marks=pytest.mark.slow),
        pytest.param(
            signal.SIGINT,
            "final/actor",
            ("num_steps=1", "train.num_critic_only_steps=0"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=[
        *("ctrl-c in the first step", "sigterm in set-up", "sigterm in the steps", "ctrl-c in set-up"),
        *("sigterm in a checkpoint", "ctrl-c at the end"),
    ],
)
def test_an_interrupted_campaign_says_so_and_leaves_nothing_running(
    tmp_path, settings, box_root, number, when, overrides
):
    """`when`: what is said, or the file of a checkpoint that is there, as the signal comes."""
    words = [word for override in (*settings, *SETTINGS, *overrides) for word in ("--set", override)]
    log, path = tmp_path / "log", tmp_path / "runs" / "smoke" / "r"
    with running(words, log, box_root) as campaign:
        until(lambda: when in log.read_text() or (path / "checkpoints" / when).exists(), campaign, log)
        if not overrides:
            time.sleep(1.5)  # into the middle of what was announced
        assert_ends(campaign, number, log, box_root)
        status = Run.open(path).status()
        assert (status.state, status.error) == ("interrupted", "interrupted")
        assert not list(path.glob("checkpoints/*")) or newest_whole(path / "checkpoints") is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_campaign_interrupted_in_its_warm_start_leaves_nothing(tmp_path, settings, box_root, number):
    kept = [override for override in settings if not override.startswith("model.actor_path")]
    words = [word for override in (*kept, *SETTINGS) for word in ("--set", override)]
    log = tmp_path / "log"
    with running(words, log, box_root, T1CORE_HOME=str(tmp_path / "home")) as campaign:
        until(lambda: "warm start" in log.read_text(), campaign, log)
        time.sleep(3.0)  # its processes are starting, or at work
        assert_ends(campaign, number, log, box_root)
        assert not (tmp_path / "runs" / "smoke" / "r").exists()
