"""The analysis frames on trials and metrics worked by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from t1core.analysis import (
    cpu_budget,
    explained_variance,
    family_table,
    heldout_gain,
    pick_trials,
    quarter_gain,
    reward_curve,
    stop_reasons,
    time_split,
    turns_by_step,
)
from t1core.analysis.critic import num_tests_baseline
from tests.analysis.frames_by_hand import metrics_frame, trials_frame


def test_the_quarters_are_steps_and_the_mean_is_over_accepted_trials():
    rewards = {0: [0.0, 0.2], 1: [0.1], 2: [9.0], 3: [9.0], 4: [9.0], 5: [9.0], 6: [0.5, 0.5, 0.5], 7: [0.9]}
    rows = [{"step": step, "reward": reward} for step, values in rewards.items() for reward in values]
    rows += [
        {"step": 0, "outcome": "cut", "reward": math.nan},
        {"step": 7, "outcome": "surplus", "reward": 7.0},
    ]
    rows += [{"step": 0, "kind": "eval", "reward": 7.0}]
    gain = quarter_gain(trials_frame(*rows))
    assert (gain.first_steps, gain.last_steps) == ((0, 1), (6, 7))
    assert gain.first_mean == pytest.approx(0.1)
    assert gain.last_mean == pytest.approx(0.6)  # (3 x 0.5 + 0.9) / 4, not the mean of the step means
    assert gain.gain.estimate == pytest.approx(0.5)
    assert (gain.first_trials, gain.last_trials) == (3, 4)
    assert gain.gain.excludes_zero


def test_one_step_has_no_gain():
    gain = quarter_gain(trials_frame({"reward": 0.1}, {"reward": 0.2}))
    assert math.isnan(gain.gain.estimate)
    assert math.isnan(quarter_gain(trials_frame({"outcome": "cut"})).first_mean)


def test_the_reward_curve_leaves_out_what_no_batch_held():
    curve = reward_curve(
        trials_frame(
            {"reward": 0.1, "passed": 2, "solved": True},
            {"reward": 0.3},
            {"reward": 5.0, "outcome": "quarantined"},
            {"step": 2, "reward": 0.2},
        )
    )
    assert curve["step"].tolist() == [0, 2]
    assert curve.loc[0, "reward"] == pytest.approx(0.2)
    assert curve.loc[0, "std"] == pytest.approx(0.1)
    assert curve.loc[0, "solved_frac"] == 0.5
    assert curve.loc[0, "passed_frac"] == 0.75
    assert curve["trials"].tolist() == [2, 1]
    assert math.isnan(curve.loc[1, "low"])


def test_heldout_gain_pairs_tasks_between_the_first_and_the_last_evaluation():
    def graded(step, task, solved, **more):
        return {"kind": "eval", "split": "heldout", "step": step, "task_id": task, "solved": solved} | more

    rows = [graded(0, "a", False), graded(0, "b", False), graded(0, "c", True), graded(0, "gone", True)]
    rows += [graded(5, "a", True), graded(5, "b", True), graded(5, "c", True)]
    rows += [
        graded(9, "a", True),
        graded(9, "b", False),
        graded(9, "c", True),
        graded(9, "broken", True, reward=math.nan),
    ]
    table = heldout_gain(trials_frame(*rows))
    assert table["tasks"].tolist() == [3]
    assert table.loc[0, "solved_before"] == pytest.approx(1 / 3)
    assert table.loc[0, "solved_after"] == pytest.approx(2 / 3)
    # Differences 1, 0, 0: mean 1/3, standard error 1/3, t(2) = 4.3027.
    assert table.loc[0, "high"] - table.loc[0, "solved_gain"] == pytest.approx(4.3027 / 3, abs=1e-3)
    assert heldout_gain(trials_frame(*rows[:4])).empty


def test_stop_reasons_are_shares_of_launched_trials_commonest_first():
    table = stop_reasons(
        trials_frame(
            {"stop_reason": "completed"},
            {"stop_reason": "cut", "outcome": "cut"},
            {"stop_reason": "completed", "step": 1},
            {"stop_reason": "max_turns", "kind": "eval"},
        )
    )
    assert list(table.columns) == ["step", "completed", "cut"]
    assert table[["completed", "cut"]].values.tolist() == [[0.5, 0.5], [1.0, 0.0]]


def test_parse_errors_are_a_share_of_turns_and_not_a_mean_of_shares():
    frame = turns_by_step(trials_frame({"num_turns": 1, "num_parse_errors": 1}, {"num_turns": 9}))
    assert frame.loc[0, "turns"] == 5
    assert frame.loc[0, "parse_error_frac"] == pytest.approx(0.1)


def test_the_family_table_counts_launched_and_compares_quarters():
    rows = [{"step": step, "reward": 0.1 * step, "family": "copy"} for step in range(4)]
    rows += [{"step": 0, "family": "find", "outcome": "cut", "reward": math.nan}]
    table = family_table(trials_frame(*rows)).set_index("family")
    assert table.loc["copy", ["launched", "accepted"]].tolist() == [4, 4]
    assert table.loc["copy", "reward_gain"] == pytest.approx(0.3)
    assert table.loc["find", ["launched", "accepted"]].tolist() == [1, 0]
    assert math.isnan(table.loc["find", "reward_gain"])


def test_the_cpu_budget_ends_with_what_nobody_used():
    parts = {"generate": 1.0, "box": 2.0, "grade": 3.0, "train": 1.0, "driver": 0.5}
    metrics = metrics_frame(
        2, time__step_s=[4.0, 6.0], **{f"cpu__{part}_s": [s, s] for part, s in parts.items()}
    )
    table = cpu_budget(metrics, num_cpus=2).set_index("part")
    assert table.loc["unused", "cpu_s_per_step"] == pytest.approx(10.0 - 7.5)
    assert table.loc["grade", "share"] == pytest.approx(0.3)
    assert table["share"].sum() == pytest.approx(1.0)


def test_time_split_leaves_what_neither_side_nor_barrier_explains():
    metrics = metrics_frame(
        1, time__step_s=[10.0], time__rollout_s=[7.0], time__train_s=[4.0], time__barrier_s=[1.0]
    )
    assert time_split(metrics).loc[0, "other_s"] == pytest.approx(2.0)


def test_metrics_that_were_not_recorded_are_nan_and_not_zero():
    trials = trials_frame({"step": 0}, {"step": 1})
    frame = explained_variance(metrics_frame(2), trials=trials)
    assert frame["critic"].tolist() == [0.1, 0.1]
    assert frame["r2"].isna().all() and frame["num_tests_baseline"].isna().all()
    assert explained_variance(pd.DataFrame(index=pd.RangeIndex(0, name="step")), trials=trials).empty


def test_the_num_tests_baseline_is_a_line_through_earlier_steps_only():
    past = [{"step": 0, "num_tests": n, "reward": n / 20} for n in (4, 8, 12)]
    now = [
        {"step": 1, "num_tests": 4, "reward": 0.3, "sampled_tokens": 10},
        {"step": 1, "num_tests": 12, "reward": 0.7, "sampled_tokens": 30},
    ]
    # Residuals 0.1 and 0.1 leave no variance: what is off by a constant explains everything.
    assert num_tests_baseline(trials_frame(*past, *now))[1] == pytest.approx(1.0)
    now[1]["reward"] = 0.5
    # Returns 0.3 and 0.5 with weights 1:3 vary by 0.0075; residuals 0.1 and -0.1 too: nothing is explained.
    assert num_tests_baseline(trials_frame(*past, *now))[1] == pytest.approx(0.0)
    assert np.isnan(num_tests_baseline(trials_frame(*past, *now))[0])


def test_picked_trials_are_the_last_and_longest_of_their_kind():
    trials = trials_frame(
        {"trial_id": "old", "solved": True, "step": 0, "num_turns": 9},
        {"trial_id": "new", "solved": True, "step": 3},
        {"trial_id": "long", "solved": True, "step": 3, "num_turns": 5},
        {"trial_id": "none", "passed": 0, "step": 3, "num_turns": 8},
        {"trial_id": "some", "passed": 1, "step": 2},
    )
    assert pick_trials(trials) == {"solved": "long", "unsolved": "some"}
    assert pick_trials(trials.iloc[:0]) == {}
