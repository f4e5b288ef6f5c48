"""The simulated step: the scheduler's own code under a clock that jumps, and its numbers by hand."""

import importlib.util
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "pacing_benchmark", Path(__file__).parents[2] / "benchmarks" / "pacing.py"
)
pacing = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pacing)


def test_a_thousand_trials_take_no_time_and_every_one_is_accounted_for():
    found = pacing.simulate(1000, keep=0.9, max_live=560, rate_per_s=6.0)
    assert (
        found["accepted"] == 900 and found["launched"] == found["accepted"] + found["cut"] + found["surplus"]
    )
    # Creation alone takes (launched - 1) / 6 virtual seconds.
    assert found["virtual_s"] >= (found["launched"] - 100) / 6 and found["virtual_s"] > 10 * found["wall_s"]


def test_the_rate_bounds_how_soon_the_last_is_opened(monkeypatch):
    monkeypatch.setattr(pacing, "turn_times", lambda seed: pacing.np.full(8, 1.0))
    found = pacing.simulate(60, keep=1.0, max_live=60, rate_per_s=0.5)
    # The last of 60 is opened after 59 / 0.5 s and takes 8 s.
    assert found["virtual_s"] == pytest.approx(59 / 0.5 + 8)
    assert pacing.simulate(60, keep=1.0, max_live=60, rate_per_s=0.5)["virtual_s"] == found["virtual_s"]


def test_a_wait_for_nothing_is_an_error_and_not_a_hang():
    loop = pacing.VirtualTimeLoop()
    try:
        with pytest.raises(RuntimeError, match="waits for nothing"):
            loop.run_until_complete(loop.create_future())
    finally:
        loop.close()
