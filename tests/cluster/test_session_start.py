"""Ray on a busy machine: a start that came too late is ended before the next, and nothing of either is left."""

import os
import subprocess
import sys

import pytest
import ray

from t1core.cluster.session import ray_session

# The first agent of Ray's that imports this is held up for longer than Ray waits.
LATE = """
import os, sys, time
arguments = open("/proc/self/cmdline", "rb").read()
if b"dashboard/agent.py" in arguments:
    try:
        os.close(os.open(__file__ + ".late", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        time.sleep(600)
"""
PROGRAM = """
import psutil
from t1core.cluster.session import ray_session

def running():
    return [process.name() for process in psutil.Process().children(recursive=True)]

with ray_session(address="", num_cpus=1, object_store_mb=80):
    print(running().count("gcs_server"), running().count("raylet"))
print(running())
"""


def test_a_private_instance_is_started_beside_another_cluster_of_this_machine(monkeypatch):
    asked = []
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    monkeypatch.setattr(ray, "init", lambda **options: asked.append(options))
    with ray_session(address="", num_cpus=1, object_store_mb=80):
        pass
    assert [options["address"] for options in asked] == ["local"]


@pytest.mark.slow
def test_a_late_start_is_ended_before_the_next(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(LATE)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert (tmp_path / "sitecustomize.py.late").exists(), "no start was held up"
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["1 1", "[]"]
