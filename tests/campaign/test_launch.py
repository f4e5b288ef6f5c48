"""Launching a campaign of its own process, finding it again while it prepares, and ending it with its notebook."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from t1core.campaign.launch import launch_or_attach, read_launch, toml_string
from t1core.config import load_config
from tests.notebooks.written_notebook import write_notebook

ODD = """it's "odd" \\ and = [ünï] 🙂 \x7f"""
# Keeps a campaign busy preparing for as long as a test needs, without Ray.
SLOW_TO_PREPARE = ["tasks.tasks_per_family=4000", "cluster.min_free_memory_mb=0"]


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("T1CORE_HOME", str(tmp_path / "home"))


def wait_until(holds, *, seconds=90):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    "text", ["runs", "it's", 'a"b', 'it\'s "x"', "a\\b", "C:\\new", "a\nb", ODD, "1", "true", ""]
)
def test_any_text_survives_as_an_overrides_value(text):
    assert load_config("smoke", [f"run_root={toml_string(text)}"]).run_root == text


def test_a_failing_launch_in_an_oddly_named_root_says_why_and_leaves_nothing_elsewhere(tmp_path):
    (tmp_path / "empty").mkdir()
    root = tmp_path / ODD
    arguments = {
        "preset": "smoke", "seed": 0, "name": "odd", "run_root": str(root),
        "overrides": [f"tasks.pool={tmp_path / 'empty'}", "cluster.min_free_memory_mb=0"],
    }  # fmt: skip
    launched = launch_or_attach(**arguments)
    with pytest.raises(
        RuntimeError, match=r"ended before its run directory was made:\s+t1: pool .*empty is empty"
    ):
        launched.wait(progress=print)
    assert launched.run_path.parent == root / "odd"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["empty", ODD])
    assert not read_launch(launched.run_path).is_alive


def test_a_launch_is_found_while_it_prepares_and_only_by_the_same_configuration(tmp_path):
    arguments = {
        "preset": "smoke", "name": "twice", "run_root": str(tmp_path / "runs"), "overrides": SLOW_TO_PREPARE,
    }  # fmt: skip
    first = launch_or_attach(seed=0, **arguments)
    try:
        again = launch_or_attach(seed=0, **arguments)
        assert again.run_path == first.run_path
        assert not (first.run_path / "status.json").exists()
        assert len(list(first.run_path.parent.glob("*.log"))) == 1
        wait_until(lambda: "generating" in first.log_path.read_text())
        again.stop()
        with pytest.raises(RuntimeError, match="before its run directory was made"):
            again.wait(progress=print)
        assert first._process.wait(30) == 130
    finally:
        first._process.kill()
        first._process.wait()
    assert [path for path in (tmp_path / "home").iterdir() if path.is_dir()] == []
    other = launch_or_attach(seed=1, **arguments)
    other._process.kill()
    other._process.wait()
    assert other.run_path != first.run_path


def test_ctrl_c_on_a_notebook_waits_for_its_campaigns_end_and_names_the_partial_copy(tmp_path):
    launch = (
        "from t1core.campaign.launch import launch_or_attach\n"
        f"launched = launch_or_attach(preset='smoke', seed=0, name='n', run_root={str(tmp_path / 'runs')!r},\n"
        f"    overrides={SLOW_TO_PREPARE!r})\n"
        "launched.wait()"
    )
    write_notebook(tmp_path / "n.ipynb", launch)
    (tmp_path / "n.yaml").write_text("notebook: n.ipynb\n")
    said = (tmp_path / "said").open("w+")
    campaign = None
    command = subprocess.Popen(
        [sys.executable, "-m", "t1core.cli", "notebook", "n.yaml"], cwd=tmp_path,
        stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    try:
        wait_until(lambda: "generating" in (tmp_path / "said").read_text())
        record = next((tmp_path / "runs" / "n").glob("*.launch.json"))
        campaign = read_launch(record.with_name(record.name.removesuffix(".launch.json")))
        assert campaign.is_alive
        os.kill(command.pid, signal.SIGINT)
        assert command.wait(120) == 130
        assert not campaign.is_alive
    finally:
        for process in psutil.Process(command.pid).children(recursive=True) if command.poll() is None else []:
            process.kill()
        command.kill()
        command.wait()
        if campaign is not None and campaign.is_alive:
            os.kill(campaign.pid, signal.SIGKILL)
    text = (tmp_path / "said").read_text()
    assert "interrupted: ending the campaign of" in text
    copy = tmp_path / "runs" / "notebooks" / "n.ipynb"
    assert f"executed notebook: {copy}" in text
    assert "generating the practice pool" in copy.read_text()
