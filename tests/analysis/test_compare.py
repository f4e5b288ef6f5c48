"""Comparison of runs worked by hand."""

import pytest

from t1core.analysis import RunFrames, compare_runs, over_runs, reward_curves
from tests.analysis.frames_by_hand import metrics_frame, trials_frame


def _run(seed, slope, steps=4):
    rows = [{"step": step, "reward": slope * step + 0.001 * n} for step in range(steps) for n in range(4)]
    ev = [0.0, 0.2, 0.4, 0.1 * seed + 0.5]
    metrics = metrics_frame(4, critic__explained_variance=ev, critic__ev_num_tests_baseline=[0.1] * 4)
    return RunFrames({"seed": seed}, metrics, trials_frame(*rows))


def test_each_run_keeps_its_own_interval_and_runs_are_averaged_as_units():
    table = compare_runs({"a": _run(0, 0.1), "b": _run(1, 0.2), "c": _run(2, -0.1)})
    assert table["reward_gain"].tolist() == pytest.approx([0.3, 0.6, -0.3])
    assert (table["low"] > 0).tolist() == [True, True, False]
    assert table["ev_last"].tolist() == pytest.approx([0.5, 0.6, 0.7])
    assert table["ev_min"].tolist() == [0.0, 0.0, 0.0]
    mean = over_runs(table)
    assert mean["reward_gain"].estimate == pytest.approx(0.2)
    # Standard deviation 0.4583 over three runs, t(2) = 4.3027: half width 1.1384.
    assert mean["reward_gain"].high - 0.2 == pytest.approx(1.1384, abs=1e-3)


def test_curves_keep_only_steps_that_every_run_has():
    curves = reward_curves({"a": _run(0, 0.1, steps=3), "b": _run(1, 0.1, steps=4)})
    assert curves.groupby("run")["step"].apply(list).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert reward_curves({}).empty
