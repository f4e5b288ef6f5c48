"""The contract suite over an environment of Harbor's, run by a Python that has harbor."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_harbors_environments_keep_the_contract():
    python = os.environ.get("T1CORE_HARBOR_PYTHON")
    if not python:
        pytest.skip(
            "T1CORE_HARBOR_PYTHON is not set: it names a Python that has harbor, pytest and pytest-json-ctrf"
        )
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/sandbox/test_contract.py",
        "-k",
        "harbor",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "15 passed" in done.stdout and "skipped" not in done.stdout
