"""What a trial host takes from the configuration."""

import asyncio

import pytest

from t1core.cluster.hosting import make_boxes
from t1core.config import load_config


def test_a_grades_limits_and_the_image_come_from_the_configuration(tmp_path):
    for name in ("bash", "tmux"):
        program = tmp_path / "usr/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)
    limits = ["verifier.memory_mb=300", "verifier.max_processes=9", "verifier.max_parallel=3"]
    sandbox, grader = make_boxes(load_config("quickstart", [*limits, f"sandbox.image_dir={tmp_path}"]))
    try:
        assert (grader._memory_mb, grader._max_processes, grader._turns._value) == (300, 9, 3)
        assert sandbox._system == grader._system == tmp_path
    finally:
        asyncio.run(sandbox.close())


def test_an_image_that_is_not_there_stops_the_host(tmp_path):
    with pytest.raises(ValueError, match="no such directory; unpack the image there"):
        make_boxes(load_config("quickstart", [f"sandbox.image_dir={tmp_path}/none"]))
