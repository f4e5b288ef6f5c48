"""The limit on open files, in processes of their own: raised where it may be, else refused with the arithmetic."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
soft, hard, boxes = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from t1core.sandbox.descriptors import raise_descriptors
print(raise_descriptors(boxes))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limits(soft, hard, *, boxes):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(soft), str(hard), str(boxes)],
        capture_output=True,
        text=True,
        check=True,
    )
    told, after = done.stdout.splitlines()
    return told, tuple(map(int, after.split()))


@pytest.mark.parametrize("soft", [256, 1024])
def test_a_low_limit_is_raised_when_560_boxes_need_it(soft):
    assert limits(soft, 4096, boxes=560) == ("None", (4096, 4096))


def test_a_limit_that_is_enough_is_left_alone():
    assert limits(256, 4096, boxes=48) == ("None", (256, 4096))


@pytest.mark.parametrize(("hard", "most"), [(256, 48), (1024, 240)])
def test_a_hard_limit_that_is_too_low_is_refused_with_the_arithmetic(hard, most):
    told, after = limits(hard, hard, boxes=560)
    assert "560 boxes x 4 descriptors + 64 = 2304 open files are needed" in told
    assert f"lower rollout.max_live_trials to {most}" in told and after == (hard, hard)


def test_where_no_box_fits_none_is_offered():
    told, _ = limits(60, 60, boxes=16)
    assert "60 are the hard limit: run under `ulimit -Hn 128`" in told and "lower" not in told
