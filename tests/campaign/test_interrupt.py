"""Ctrl-C and SIGTERM end a campaign wherever it is: 130, status interrupted, no process and no box left."""

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


@pytest.mark.parametrize(
    ("number", "when"),
    [
        (signal.SIGINT, "held out"),
        (signal.SIGTERM, "starting trainer"),
        pytest.param(signal.SIGTERM, "step   1/", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "starting trainer", marks=pytest.mark.slow),
    ],
    ids=["ctrl-c in the first step", "sigterm in set-up", "sigterm in the steps", "ctrl-c in set-up"],
)
def test_an_interrupted_campaign_says_so_and_leaves_nothing_running(
    tmp_path, settings, box_root, number, when
):
    settings += [
        "num_steps=200", "evaluation.tasks_per_split=1", "agent.max_turns=1", "agent.max_new_tokens=32",
        "rollout.rollout_batch_size=2", "rollout.over_sampling_batch_size=2",
    ]  # fmt: skip
    words = [word for override in settings for word in ("--set", override)]
    log = tmp_path / "log"
    with log.open("w") as file:
        campaign = subprocess.Popen(
            [sys.executable, "-m", "t1core.cli", "campaign", "smoke", "--run-name", "r", *words],
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"T1CORE_BOX_DIR": str(box_root)},
        )  # fmt: skip
    family = []
    try:
        deadline = time.monotonic() + 600
        while when not in log.read_text():
            assert campaign.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
        time.sleep(1.5)  # into the middle of what was announced
        family = psutil.Process(campaign.pid).children(recursive=True) + in_session(campaign.pid)
        os.kill(campaign.pid, number)
        assert campaign.wait(120) == 130, log.read_text()[-2000:]
        _, alive = psutil.wait_procs(family, timeout=20)
        assert [" ".join(process.cmdline())[:100] for process in alive] == []
        assert in_session(campaign.pid) == []
        status = Run.open(tmp_path / "runs" / "smoke" / "r").status()
        assert (status.state, status.error) == ("interrupted", "interrupted")
        assert list(box_root.glob("block-*/*")) == []
        assert "Traceback" not in log.read_text()
    finally:
        for process in [*family, *in_session(campaign.pid)]:
            if process.is_running():
                process.kill()
        campaign.kill()
        campaign.wait()
