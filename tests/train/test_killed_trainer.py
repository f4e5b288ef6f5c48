"""A trainer that is killed at any point of a step and started again ends with the bits of one that was left alone."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from killed_trainer import POINTS

WORKER = Path(__file__).with_name("killed_trainer.py")


def _answers(scratch, actor_path, points):
    job = scratch / "job.json"
    job.write_text(json.dumps({"actor_path": actor_path, "scratch": str(scratch), "points": points}))
    with (scratch / "log").open("w") as log:
        code = subprocess.run(
            [sys.executable, str(WORKER), str(job)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        ).returncode
    assert code == 0, (scratch / "log").read_text()[-3000:]
    return json.loads((scratch / "out.json").read_text())


@pytest.mark.slow
def test_a_trainer_killed_at_any_point_of_a_step_goes_on_bit_for_bit(tmp_path, actor_path):
    answers = _answers(tmp_path, actor_path, list(POINTS))
    whole = answers.pop("uninterrupted")
    assert whole["ended"] == 0 and whole["found"] is None
    assert list(answers) == list(POINTS)
    for point, answer in answers.items():
        assert answer["ended"] == -signal.SIGKILL, point
        assert answer["found"] == "step_0001", point
        assert answer["weights"] == whole["weights"], point
