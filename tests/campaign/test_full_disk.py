"""A disk that fills up: the campaign ends as failed, says so in its run, and no line that does not fit stops it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_CAMPAIGN = """
import sys
from pathlib import Path
from t1core.campaign import campaign
from t1core.config import load_config
from t1core.store import Run

async def fill(config, assets, pool, run, log, *_):
    run.record_metrics({"reward/mean": 0.5}, step=0)
    run.update_status(step=0)
    with (run.path / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    for _ in range(3):
        log("x" * 9000)
    for step in range(1, 1000):
        run.record_metrics({"reward/mean": 0.5}, step=step)

campaign._run = fill
sys.stdout = (Path(sys.argv[1]) / "out.log").open("w", buffering=1)
sys.argv = ["t1", "campaign", "smoke", "--run-name", "full", *sys.argv[2:]]
from t1core import cli
cli.main()
"""


def _refusal():
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    mount = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "t1", "/tmp"]
    tried = subprocess.run(mount, capture_output=True, text=True)
    return f"this machine forbids a private tmpfs: {tried.stderr.strip()}" if tried.returncode else None


def test_a_campaign_on_a_full_disk_ends_as_failed_and_its_records_stay_readable(tmp_path, actor, pool):
    if reason := _refusal():
        pytest.skip(reason)
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    kept.mkdir()
    settings = [
        f"model.actor_path={actor}", f"tasks.pool={pool}", "tasks.startup_sample=0",
        f"run_root={disk}", "cluster.min_free_memory_mb=0", "cluster.min_free_disk_mb=0",
    ]  # fmt: skip
    words = " ".join(f"--set '{setting}'" for setting in settings)
    # The checks need boxes, which an inner user namespace may not give; the disk is what is under test.
    code = (
        "from t1core.campaign import preflight\npreflight.check_machine = lambda config: None\n" + _CAMPAIGN
    )
    script = (
        f'mount -t tmpfs -o size=1500k t1 {disk} && {sys.executable} -c "$1" {disk} {words}; code=$?; '
        f"rm -f {disk}/smoke/full/filler; cp -r {disk}/smoke/full {kept}/; exit $code"
    )
    answer = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", code],
        capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    from t1core.store import Run

    run = Run.open(kept / "full")
    status = run.status()
    assert status.state == "failed", answer.stderr[-2000:]
    assert "DiskFull: [Errno 28] disk full" in status.error
    assert run.metrics().index.tolist()[0] == 0
    assert answer.returncode in (2, 120)  # 120: Python could not flush its output at the end
    assert "Traceback" not in answer.stderr
    assert answer.stderr.splitlines()[0].startswith("t1: [Errno 28] disk full")
