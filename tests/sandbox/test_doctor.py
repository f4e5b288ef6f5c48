"""The doctor: what it finds here, and what it says where something is missing."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from t1core.campaign.preflight import check_machine
from t1core.cli import app
from t1core.config import load_config
from t1core.sandbox import doctor
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.doctor import probe
from t1core.sandbox.room import room
from t1core.sandbox.sandbox import SandboxUnavailable
from t1core.sandbox.state import box_root

PROBE = (
    "import dataclasses, json\nfrom t1core.sandbox.doctor import probe\n"
    "print(json.dumps(dataclasses.asdict(probe())))\n"
)


def test_this_machine_can_hold_boxes():
    found = probe()
    assert found.problems == ()
    assert found.bubblewrap.startswith("bubblewrap ")
    assert found.tmux.startswith("tmux ")
    assert found.num_boxes > 0


def test_the_number_of_boxes_is_arithmetic():
    found = room(free_bytes=3200 << 20, descriptors=1024, processes=900)
    # 1,600 MB at 16 MB a box; 960 descriptors at 4; 900 processes at 6; 1,024 uids.
    assert found.boxes == {"memory": 100, "open files": 240, "processes": 150, "uids": 1024}
    assert (found.num_boxes, found.limited_by) == (100, "memory")
    assert room(free_bytes=0, descriptors=10, processes=5).num_boxes == 0


def test_the_command_says_what_limits_the_boxes():
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 0, done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    number = next(int(line[1]) for line in lines if line[0] == "boxes")
    limits = {" ".join(line[:-1]): int(line[-1]) for line in lines if line[-2][-1] == ":"}
    assert set(limits) == {"memory:", "open files:", "processes:", "uids:"}
    assert abs(min(limits.values()) - number) <= number // 10


def test_an_overlay_root_is_tried_and_what_keeps_it_from_working_is_said(monkeypatch):
    if os.geteuid() != 0:
        assert probe().overlay.fix == "run as root"
        return
    assert probe().overlay is None
    assert not [path for path in box_root().glob("try-*")]
    monkeypatch.setattr(doctor, "_OVERLAY", "t1core.sandbox.inbox.none")
    found = probe().overlay
    assert found.what.startswith("an overlay root does not work: ") and "kernel 5.19" in found.fix
    said = CliRunner().invoke(app, ["doctor"]).stdout
    assert f"overlay root     no: {found.what[:40]}" in said and "sandbox.image_root=read_only" in said
    overlaid = load_config("quickstart", ["sandbox.image_root=overlay", "sandbox.image_dir=/"])
    with pytest.raises(ValueError, match=r"sandbox\.image_root=overlay: an overlay root does not work"):
        check_machine(overlaid)


def test_missing_tools_are_named_with_the_command_that_installs_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probe()
    assert found.problems
    assert found.num_boxes == 0
    fixes = {problem.what: problem.fix for problem in found.problems}
    assert fixes["bubblewrap is not installed"] == "apt-get install -y bubblewrap"
    assert fixes["tmux is not installed"] == "apt-get install -y tmux"
    with pytest.raises(
        SandboxUnavailable, match=r"bubblewrap is not installed\. Fix: apt-get install -y bubblewrap"
    ):
        BubblewrapSandbox()


def test_forbidden_namespaces_are_found_by_trying():
    inside = [shutil.which("bwrap"), "--dev-bind", "/", "/", "--unshare-user", "--disable-userns", "--"]
    done = subprocess.run([*inside, sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert not found["user_namespaces"]
    assert all(problem["fix"] for problem in found["problems"])
    whats = [problem["what"] for problem in found["problems"]]
    expected = "this root user lacks uids" if os.geteuid() == 0 else "user namespaces are not allowed: "
    assert whats[0].startswith(expected), whats


def test_opening_a_box_where_namespaces_are_forbidden_says_so():
    program = (
        "import asyncio\nfrom t1core.sandbox.bubblewrap import BubblewrapSandbox\n"
        "from t1core.sandbox.sandbox import BoxSpec, SandboxUnavailable\n"
        "async def main():\n"
        "    try:\n"
        "        sandbox = BubblewrapSandbox()\n"
        "        try: await sandbox.open(BoxSpec('b', None))\n"
        "        finally: await sandbox.close()\n"
        "    except SandboxUnavailable as error: print(error)\n"
        "asyncio.run(main())\n"
    )
    inside = [shutil.which("bwrap"), "--dev-bind", "/", "/", "--unshare-user", "--disable-userns", "--"]
    done = subprocess.run(
        [*inside, sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    expected = "this root user lacks uids" if os.geteuid() == 0 else "bubblewrap refused to open a box"
    assert expected in done.stdout, done.stderr
    assert "Fix: " in done.stdout
