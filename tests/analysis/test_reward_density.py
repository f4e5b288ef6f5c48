"""What counted trials say against binary ones: every number of the made-up file is worked by hand."""

import dataclasses
import json

import numpy as np
import pytest

from t1core.analysis import (
    RewardDensity,
    check_reward_density,
    measure_reward_density,
    read_counted_trials,
)
from t1core.analysis.reward_density import entropy_bits, miller_madow_bits, policy_information
from t1core.view import figure_reward_density
from tests.analysis.counted_by_hand import COLUMNS, rows, write_trials

QUARTER = 0.8112781244591328  # entropy of 1/4 : 3/4
FIVE_EIGHTHS = 0.9544340029249649  # of 3/8 : 5/8


@pytest.fixture
def density(tmp_path):
    return measure_reward_density(read_counted_trials(write_trials(tmp_path / "trials.json")))


def test_records_without_a_grade_are_left_out_and_counted(tmp_path):
    trials = read_counted_trials(write_trials(tmp_path / "trials.json"))
    assert trials.source == "made up"
    assert (trials.num_records, trials.num_without_reward, trials.num_without_tests) == (19, 1, 2)
    assert len(trials.frame) == 16


def test_bits_of_a_trial_are_those_worked_by_hand(density):
    table = density.policies.set_index("policy")
    assert table.loc["weak", ["bits_binary", "bits_counted"]].tolist() == pytest.approx([QUARTER / 2, 1.25])
    assert table.loc["strong", ["bits_binary", "bits_counted"]].tolist() == pytest.approx([0.5, 0.5])
    assert table.loc["all", ["bits_binary", "bits_counted"]].tolist() == pytest.approx(
        [QUARTER / 4 + 0.25, 0.875]
    )
    # Three values seen in four trials, then two: (2 + 1) / (2 * 4 ln 2) over two groups.
    assert table.loc["weak", "corrected_counted"] == pytest.approx(1.25 + 3 / (8 * np.log(2)) / 2)
    # Gains by group: 1.5 - QUARTER, 1, 0, 0.
    gains = np.array([1.5 - QUARTER, 1.0, 0.0, 0.0])
    assert table.loc["all", "bits_gain"] == pytest.approx(gains.mean())
    assert table.loc["all", "bits_gain_error"] == pytest.approx(1.96 * gains.std(ddof=1) / 2)


def test_flat_groups_and_progress_in_failed_ones_are_counted(density):
    table = density.policies.set_index("policy")
    assert table.loc["weak", ["flat_binary", "flat_counted"]].tolist() == [0.5, 0.0]
    assert table.loc["strong", ["flat_binary", "flat_counted"]].tolist() == [0.5, 0.5]
    failed = ["all_failed", "all_failed_varying", "all_failed_above_floor"]
    assert table.loc["weak", failed].tolist() == [1, 1, 1]
    assert table.loc["strong", failed].tolist() == [0, 0, 0]


def test_a_failed_group_at_its_tasks_floor_shows_no_progress(tmp_path):
    passed = {("weak", "hard"): (1, 1, 1, 1), ("other", "hard"): (2, 2, 2, 2)}
    found = measure_reward_density(read_counted_trials(write_trials(tmp_path / "t.json", rows(passed))))
    table = found.policies.set_index("policy")
    assert table.loc["weak", ["all_failed", "all_failed_varying", "all_failed_above_floor"]].tolist() == [
        1,
        0,
        0,
    ]
    assert table.loc["other", ["all_failed", "all_failed_varying", "all_failed_above_floor"]].tolist() == [
        1,
        0,
        1,
    ]


def test_information_about_the_policy_is_worked_by_hand(density):
    table = density.information.set_index("reward")
    easy, hard = FIVE_EIGHTHS - QUARTER / 2, QUARTER - 0.5
    assert table.loc["binary", "bits"] == pytest.approx((easy + hard) / 2)
    # At the easy task the count says no more about the policy than the bit: 1.2988 - 0.75 = 0.5488 for both.
    assert table.loc["counted", "bits"] == pytest.approx((easy + 0.5) / 2)
    assert table.loc["counted", "num_tasks"] == 2
    assert (table["excess"] == table["bits"] - table["shuffled"]).all()
    assert (table["shuffled_high"] >= table["shuffled"]).all() and (table["shuffled"] > 0).all()


def test_policies_that_do_alike_tell_nothing_and_shuffling_shows_the_bias(tmp_path):
    passed = {("a", "hard"): (0, 1, 2, 4), ("b", "hard"): (0, 1, 2, 4)}
    frame = read_counted_trials(write_trials(tmp_path / "t.json", rows(passed))).frame
    table = policy_information(frame, num_shuffles=50, seed=1).set_index("reward")
    assert table["bits"].tolist() == pytest.approx([0, 0], abs=1e-12)
    assert (table["excess"] < 0).all()


def test_where_a_task_has_one_test_both_rewards_say_the_same(tmp_path):
    passed = {("a", "easy"): (0, 0, 1, 1), ("b", "easy"): (0, 1, 1, 1)}
    trials = read_counted_trials(write_trials(tmp_path / "t.json", rows(passed, num_tests={"easy": 1})))
    found = measure_reward_density(trials)
    binary, counted = found.information.drop(columns="reward").to_numpy()
    assert binary.tolist() == counted.tolist()  # also shuffled: both rewards see the same shuffles
    assert (found.policies["bits_gain"] == 0).all()


def test_a_smaller_group_is_flat_more_often(density):
    flat = density.flat.set_index(["policy", "size"])
    # weak: counts (1, 2, 1) at easy, (2, 2) at hard; of 6 pairs 1 and 2 are alike. Solved: 3 of 6, and all.
    assert flat.loc[("weak", 2), "flat_counted"] == pytest.approx((1 / 6 + 2 / 6) / 2)
    assert flat.loc[("weak", 2), "flat_binary"] == pytest.approx((3 / 6 + 1) / 2)
    assert flat.loc[("weak", 4), "flat_counted"] == 0
    assert ("weak", 5) not in flat.index


def test_small_groups_are_left_out_and_none_at_all_is_refused(tmp_path):
    passed = {("weak", "easy"): (0, 1, 2), ("weak", "hard"): (0, 0, 1, 1)}
    found = measure_reward_density(read_counted_trials(write_trials(tmp_path / "a.json", rows(passed))))
    assert (found.counts["groups"], found.counts["groups_too_small"]) == (1, 1)
    trials = read_counted_trials(write_trials(tmp_path / "b.json", rows({("weak", "easy"): (0, 1, 2)})))
    with pytest.raises(ValueError, match="no policy has 4 counted trials"):
        measure_reward_density(trials)


def test_it_comes_back_from_its_file_as_it_was(density):
    again = RewardDensity.from_json(density.to_json())
    assert again.to_json() == density.to_json()
    assert again.counts == density.counts and again.policies.equals(density.policies)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "the form is"),
        ("{", "the form is"),
        (json.dumps({"columns": ["model", "task"], "rows": []}), "no column T, P, b"),
        (
            json.dumps({"columns": COLUMNS, "rows": [["m", "t", "x", 3, 2, 1.0, 9, None]]}),
            "P=2 of T=3 with b=1",
        ),
        (
            json.dumps({"columns": COLUMNS, "rows": [["m", "t", "x", 3, 3, 0.0, 9, None]]}),
            "P=3 of T=3 with b=0",
        ),
    ],
)
def test_a_file_of_another_form_or_that_contradicts_itself_is_refused(tmp_path, content, message):
    path = tmp_path / "trials.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_counted_trials(path)


def test_the_entropy_of_even_counts_is_their_logarithm():
    assert entropy_bits(np.array([3, 3, 3, 3])) == 2
    assert entropy_bits(np.array([7])) == 0 and miller_madow_bits(np.array([7])) == 0


def test_the_checks_find_what_cannot_be(density):
    assert all(check.holds for check in check_reward_density(density))
    wrong = density.policies.assign(bits_binary=2.0, flat_counted=1.0)
    broken = check_reward_density(
        dataclasses.replace(density, policies=wrong, counts=dict(density.counts) | {"trials": 3})
    )
    assert [check.holds for check in broken] == [False, False, True, False]


def test_the_figure_says_what_was_found(density):
    title = " ".join(figure_reward_density(density).get_suptitle().split())
    assert "count says 0.88 bits where pass or fail says 0.45" in title
    assert "25% of groups stay flat against 50%" in title
    assert "1 of 1 groups that fail whole still vary" in title
