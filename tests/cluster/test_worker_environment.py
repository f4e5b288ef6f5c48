"""What importing the cluster does to a process: no torch, the environment set before Ray, our own warnings kept."""

import json
import os
import subprocess
import sys

import pytest

from t1core.cluster.environment import OFFLINE_ENV

NAMES = ["megatron.core.optimizer", "transformers", "t1core.tasks.harbor", "torchless"]
PROGRAM = f"""
import builtins, json, os, sys, warnings
real, at_ray = builtins.__import__, []
def noting(name, *rest, **more):
    if name == "ray" and not at_ray:
        at_ray.append(dict(os.environ))
    return real(name, *rest, **more)
builtins.__import__ = noting
import t1core.cluster
heavy = [name for name in ("torch", "megatron", "transformers") if name in sys.modules]
for name in {NAMES}:
    warnings.warn_explicit("said by " + name, UserWarning, "file.py", 1, module=name, registry={{}})
print(json.dumps({{"at_ray": at_ray[0], "heavy": heavy}}))
"""


@pytest.fixture(scope="module")
def driver():
    """What a fresh process reports after importing the cluster, and what it wrote to stderr."""
    env = {name: value for name, value in os.environ.items() if name not in (*OFFLINE_ENV, "PYTHONWARNINGS")}
    env["MKL_NUM_THREADS"] = "3"
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout), done.stderr


def test_the_driver_imports_neither_torch_nor_what_stands_on_it(driver):
    assert driver[0]["heavy"] == []


def test_the_environment_is_set_before_ray_is_imported_and_what_the_user_set_stays(driver):
    expected = OFFLINE_ENV | {"MKL_NUM_THREADS": "3"}
    assert {name: driver[0]["at_ray"].get(name) for name in expected} == expected


def test_only_the_libraries_import_noise_is_hidden(driver):
    said = [name for name in NAMES if f"said by {name}" in driver[1]]
    assert said == ["t1core.tasks.harbor", "torchless"]
    assert "PYTHONWARNINGS" not in driver[0]["at_ray"], "it would reach graders and boxes"
