"""Figures: titles say what the data say, bytes are stable, and empty or odd frames still draw."""

import math

import matplotlib as mpl
import pandas as pd
import pytest

from t1core.analysis import (
    cpu_budget,
    explained_variance,
    heldout_gain,
    logprob_gap,
    quarter_gain,
    reward_curve,
    stop_reasons,
    time_split,
    turns_by_step,
)
from t1core.view import (
    figure_cpu_budget,
    figure_explained_variance,
    figure_heldout,
    figure_logprob_gap,
    figure_reward,
    figure_stop_reasons,
    figure_time_split,
    keep_figure,
)
from tests.analysis.frames_by_hand import metrics_frame, trials_frame

COST = {
    f"cpu__{part}_s": [float(n), float(n)]
    for n, part in enumerate(("generate", "box", "grade", "train", "driver"))
}
TIME = {"time__step_s": [12.0, 12.0], "time__rollout_s": [10.0, 10.0], "time__train_s": [4.0, 4.0]}


def _rising(sign=1):
    rows = [
        {"step": step, "reward": 0.5 + sign * (0.1 * step + 0.01 * n)} for step in range(4) for n in range(5)
    ]
    return trials_frame(*rows)


def _figures(trials, metrics):
    yield "reward", lambda: figure_reward(reward_curve(trials), gain=quarter_gain(trials))
    yield "ev", lambda: figure_explained_variance(explained_variance(metrics, trials=trials))
    yield "gap", lambda: figure_logprob_gap(logprob_gap(metrics))
    yield "time", lambda: figure_time_split(time_split(metrics))
    yield "cpu", lambda: figure_cpu_budget(cpu_budget(metrics, num_cpus=2))
    yield "stop", lambda: figure_stop_reasons(stop_reasons(trials), turns=turns_by_step(trials))
    yield "heldout", lambda: figure_heldout(heldout_gain(trials))


def _whole_run():
    evaluated = [
        {"kind": "eval", "split": "heldout", "step": step, "task_id": str(n)}
        for step in (0, 4)
        for n in range(3)
    ]
    trials = pd.concat([_rising(), trials_frame(*evaluated)], ignore_index=True)
    gaps = {"logprob_gap__abs_mean": [0.01, 0.01], "logprob_gap_free__abs_mean": [0.02, 0.03]}
    return trials, metrics_frame(2, time__barrier_s=[1.0, 1.0], **TIME, **COST, **gaps)


def test_a_figure_drawn_twice_is_the_same_bytes_whatever_the_users_style_is():
    for name, draw in _figures(*_whole_run()):
        first = draw()
        png, svg = first.png(), first.svg()
        with mpl.rc_context({"font.size": 20, "lines.linewidth": 9, "axes.facecolor": "pink"}):
            second = draw()
            assert second.svg() == svg, name
            assert second.png() == png, name
        assert b"<dc:date>" not in svg


def test_frames_without_data_draw_a_figure_that_says_so():
    trials, metrics = trials_frame({}).iloc[:0], pd.DataFrame(index=pd.RangeIndex(0, name="step"))
    for name, draw in _figures(trials, metrics):
        assert draw().png(), name


def _reward_title(trials):
    return figure_reward(reward_curve(trials), gain=quarter_gain(trials)).get_suptitle().replace("\n", " ")


def test_the_reward_title_follows_the_interval():
    assert _reward_title(_rising()).startswith(
        "Mean reward rises: 0.520 in the first quarter of steps, 0.820 in the last"
    )
    assert _reward_title(_rising(sign=-1)).startswith("Mean reward falls")
    flat = trials_frame(*({"step": step, "reward": 0.1 * n} for step in range(4) for n in range(5)))
    assert _reward_title(flat).startswith("Mean reward does not clearly change")
    assert "too little data" in _reward_title(trials_frame({"step": 0}, {"step": 1}))


def test_the_gap_title_does_not_claim_what_the_numbers_deny():
    metrics = metrics_frame(2, logprob_gap__abs_mean=[0.02, 0.02], logprob_gap_free__abs_mean=[0.01, 0.01])
    assert figure_logprob_gap(logprob_gap(metrics)).get_suptitle().startswith("Replaying routes does not cut")
    alone = metrics_frame(2, logprob_gap__abs_mean=[0.02, 0.04])
    title = figure_logprob_gap(logprob_gap(alone)).get_suptitle().replace("\n", " ")
    assert title == "Trainer and engine differ by 0.03 nats a token with routes replayed (mean over steps)"


def test_explained_variance_far_below_the_axis_is_drawn_at_its_edge_and_said():
    metrics = metrics_frame(4, critic__explained_variance=[-33.6, math.nan, 0.2, 0.6])
    figure = figure_explained_variance(explained_variance(metrics, trials=trials_frame({})))
    (axes,) = figure.axes
    assert axes.get_lines()[0].get_ydata().tolist() == [-1.5, 0.2, 0.6]
    assert "1 of 3 steps below -1.5" in axes.get_legend().get_texts()[0].get_text()
    assert (
        figure.get_suptitle().replace("\n", " ")
        == "Explained variance is 0.60 in the last quarter of steps; below 0 in 1"
    )


def test_measured_and_computed_look_different_and_are_labelled():
    trials, metrics = _whole_run()
    for draw in (
        figure_reward(reward_curve(trials), gain=quarter_gain(trials)),
        figure_explained_variance(explained_variance(metrics, trials=trials)),
    ):
        (axes,) = draw.axes
        looks = {
            line.get_label().split(":")[0]: (line.get_linestyle(), line.get_marker())
            for line in axes.get_lines()
        }
        assert looks["measured"] == ("-", "o")
        assert looks["computed"] == ("--", "")


@pytest.mark.parametrize("barrier", [[], [1.0, 1.0]])
def test_the_time_title_names_the_longer_side(barrier):
    metrics = metrics_frame(2, **TIME, **({"time__barrier_s": barrier} if barrier else {}))
    title = figure_time_split(time_split(metrics)).get_suptitle().replace("\n", " ")
    assert title.startswith("A step takes 12.0 s; rollout is the longer side, 10.0 s")
    assert title.endswith("1.0 s" if barrier else "0.0 s")


def test_a_kept_figure_enters_the_manifest_and_tells_changed_data_from_changed_style(tmp_path):
    import json

    def keep(trials):
        curve = reward_curve(trials)
        figure = figure_reward(curve, gain=quarter_gain(trials))
        keep_figure(
            figure,
            folder=tmp_path,
            name="reward",
            notebook="n.ipynb",
            parameters={},
            inputs={"figures/results/x": "12"},
            measured_at={},
        )
        return json.loads((tmp_path / "manifest.json").read_text())["reward"], (
            tmp_path / "manifest.json"
        ).read_bytes()

    one, first = keep(_rising())
    assert keep(_rising())[1] == first
    other, _ = keep(_rising(sign=-1))
    assert other["data_sha256"] != one["data_sha256"]
    assert other["files_sha256"]["svg"] != one["files_sha256"]["svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "reward.png", "reward.svg"]
