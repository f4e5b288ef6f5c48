"""Trial directories between Harbor's viewer and ours, with Harbor itself on the other side."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from t1core.cli import app
from t1core.store import Run, read_harbor_trial
from tests.store.records_by_hand import trial
from tests.tasks.conformance import CASES

DRIVER = Path(__file__).with_name("harbor_side.py")
ROOT = DRIVER.parents[2]
pytestmark = pytest.mark.slow


def harbor(*words):
    python = os.environ.get("T1CORE_HARBOR_PYTHON")
    if not python:
        pytest.skip("T1CORE_HARBOR_PYTHON is not set: it names a Python that has harbor")
    done = subprocess.run(
        [python, DRIVER, *map(str, words)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_trial_of_ours_opens_in_harbors_viewer(tmp_path):
    run = Run.create(tmp_path, campaign="demo", run_name="r", config={}, provenance={})
    run.record_vocabulary(["<0>", "a", "b", "c", "d", "e", "f", "g"])
    run.record_trajectories([trial("a")], step=0)
    jobs = tmp_path / "jobs"
    words = ["export", str(run.path), "a", "--format", "harbor", "--output", str(jobs / "job" / "a")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = harbor("view", jobs, "a")
    assert [job["name"] for job in found["jobs"]] == ["job"]
    for place in ("", "/trajectory", "/verifier-output", "/files"):
        assert found[place][0] == 200, found[place]
    stored = run.trajectory("a")
    steps = [step for step in found["/trajectory"][1]["steps"] if step["source"] == "agent"]
    assert len(steps) == len(stored.turns)
    assert found[""][1]["verifier_result"]["rewards"]["reward"] == pytest.approx(
        float(stored.trial["reward"])
    )


def test_a_trial_that_harbor_ran_opens_in_our_viewer(tmp_path):
    case = next(case for case in CASES if case.name == "empty")
    task = case.write(tmp_path / "tasks")
    (task / "tests/test.sh").write_text("test -e /app/a; echo $(( 1 - $? )) > /logs/verifier/reward.txt\n")
    directory = harbor("run", task, tmp_path / "trials")
    stored = read_harbor_trial(directory)
    assert (stored.trial["reward"], stored.trial["stop_reason"]) == (1.0, "completed"), dict(stored.trial)
    assert stored.turns["commands"][0][0]["keystrokes"] == "touch /app/a\n"
    done = CliRunner().invoke(app, ["page", directory, "--output", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert "touch /app/a" in page and "terminus-2" in page
