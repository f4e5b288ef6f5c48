"""Verdicts on numbers worked by hand, and measures on frames written by hand."""

import math

import pandas as pd
import pytest

from t1core.analysis import Contrast, RunFrames, Verdict, judge, measured, over_seeds, overall, passed_curve
from t1core.analysis.claims import MEASURES


def table(**arms):
    rows = [
        {"arm": arm, "seed": seed, "x": value}
        for arm, values in arms.items()
        for seed, value in values.items()
    ]
    return pd.DataFrame(rows, columns=["arm", "seed", "x"])


def verdict(expect, differences, margin=0.0):
    base = dict.fromkeys(range(len(differences)), 1.0)
    other = {seed: 1.0 + value for seed, value in enumerate(differences)}
    contrast = Contrast(arm="a", against="b", expect=expect, margin=margin)
    return judge(contrast, table(a=other, b=base), measure="x")


def test_the_interval_is_students_over_paired_differences():
    judged = verdict("higher", [0.1, 0.2, 0.3])
    # mean 0.2, deviation 0.1, t of two degrees 4.3027: 0.2 +- 0.2484
    assert judged.interval.estimate == pytest.approx(0.2)
    assert judged.interval.low == pytest.approx(-0.0484, abs=1e-4)
    assert judged.interval.high == pytest.approx(0.4484, abs=1e-4)
    assert judged.verdict is Verdict.UNDECIDED


def test_seeds_that_only_one_arm_has_are_left_out():
    contrast = Contrast(arm="a", against="b", expect="higher")
    judged = judge(contrast, table(a={0: 2.0, 1: 3.0, 5: 100.0}, b={0: 1.0, 1: 2.0, 6: -100.0}), measure="x")
    assert judged.differences == {0: 1.0, 1: 1.0} and judged.verdict is Verdict.HELD


@pytest.mark.parametrize(
    ("expect", "differences", "margin", "told"),
    [
        ("higher", [0.19, 0.2, 0.21], 0.0, Verdict.HELD),
        ("higher", [0.19, 0.2, 0.21], 0.15, Verdict.HELD),
        ("higher", [0.19, 0.2, 0.21], 0.2, Verdict.UNDECIDED),
        ("higher", [0.19, 0.2, 0.21], 0.3, Verdict.NOT_HELD),
        ("higher", [-0.19, -0.2, -0.21], 0.0, Verdict.NOT_HELD),
        ("lower", [-0.19, -0.2, -0.21], 0.0, Verdict.HELD),
        ("lower", [-0.19, -0.2, -0.21], 0.3, Verdict.NOT_HELD),
        ("lower", [0.19, 0.2, 0.21], 0.0, Verdict.NOT_HELD),
        ("same", [0.01, 0.0, -0.01], 0.05, Verdict.HELD),
        ("same", [0.01, 0.0, -0.01], 0.02, Verdict.UNDECIDED),
        ("same", [0.19, 0.2, 0.21], 0.1, Verdict.NOT_HELD),
        ("higher", [0.2], 0.0, Verdict.UNDECIDED),
        ("higher", [], 0.0, Verdict.NOT_RUN),
    ],
)
def test_what_follows_from_an_interval(expect, differences, margin, told):
    assert verdict(expect, differences, margin).verdict is told


def test_a_claim_holds_where_all_of_its_contrasts_do():
    held, undecided = verdict("higher", [0.2, 0.2, 0.2]), verdict("higher", [0.2, -0.2, 0.2])
    broken, absent = verdict("lower", [0.2, 0.2, 0.2]), verdict("lower", [])
    assert overall([held, held]) is Verdict.HELD
    assert overall([held, undecided]) is Verdict.UNDECIDED
    assert overall([held, undecided, broken]) is Verdict.NOT_HELD
    assert overall([held, absent]) is Verdict.UNDECIDED and overall([absent]) is Verdict.NOT_RUN


def frames():
    """Eight steps of two trials: 1 and 3 tests passed of 4 at first, 3 and 5 from step 4 on."""
    trials = [
        {"trial_id": f"s{step}{i}", "task_id": f"t{i}", "kind": "train", "step": step, "outcome": "accepted"}
        | {
            "family": "f",
            "split": "train",
            "num_tests": 4 + i,
            "passed": passed,
            "total": 6,
            "num_turns": 2 + step,
        }
        | {"solved": False, "num_parse_errors": 0, "sampled_tokens": 5, "reward": passed / 20}
        for step in range(8)
        for i, passed in enumerate((1, 3) if step < 4 else (3, 5))
    ]
    evals = [
        {"trial_id": f"e{step}{i}", "task_id": f"h{i}", "kind": "eval", "step": step, "outcome": "accepted"}
        | {
            "family": "f",
            "split": "heldout",
            "num_tests": 2 + 4 * i,
            "passed": passed,
            "total": 8,
            "num_turns": 2,
        }
        | {"solved": i == 1, "num_parse_errors": 0, "sampled_tokens": 5, "reward": 0.0}
        for step in (0, 8)
        for i, passed in enumerate((1, 7) if step else (0, 0))
    ]
    metrics = pd.DataFrame(
        {
            "critic/explained_variance": [-3.0, -1.0, 0.5, 0.9, 0.8, 0.8, 0.7, 0.9],
            "logprob_gap/abs_mean": [0.01] * 8,
            "rollout/turns_mean": [float(step) for step in range(8)],
        }
    )
    return RunFrames({}, metrics, pd.DataFrame([*trials, *evals]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("heldout_tests", 4 / 20),
        ("heldout_solved", 0.5),
        ("hard_heldout", 7 / 8),
        ("train_tests", 4 / 20),
        ("train_gain", 2 / 20),
        ("ev_first", -3.0),
        ("ev_early", -2.0),
        ("ev_last", 0.8),
        # means over three steps: -3, -2, -1.17, 0.13
        ("ev_positive_from", 3.0),
        ("gap", 0.01),
        ("turns_last", 6.5),
        ("turns_gain", 6.0),
        ("hard_share", 0.5),
        # four steps at 2/20 and four at 4/20: deviation 0.05 * sqrt(8/7)
        ("reward_swing", 0.05 * math.sqrt(8 / 7)),
    ],
)
def test_a_measure_is_what_its_name_says(name, expected):
    assert MEASURES[name].of(frames()) == pytest.approx(expected)


def test_what_a_run_did_not_record_is_no_number():
    run = frames()
    missing = [name for name in ("drift", "flat_groups", "idle_frac", "clip_frac", "staleness", "step_s")]
    values = measured({("a", 0): run}, measures=missing)
    assert values.loc[0, missing].isna().all()
    assert all(measure.meaning for measure in MEASURES.values())


def test_arms_are_told_over_their_seeds():
    values = table(a={0: 1.0, 1: 3.0}, b={0: 5.0})
    told = over_seeds(values, measures=["x"]).set_index("arm")
    assert told.loc["a", "x"] == 2.0 and told.loc["a", "seeds"] == 2 and math.isnan(told.loc["b", "x low"])
    # half of the t of one degree, 12.706, times a deviation of sqrt(2) over sqrt(2)
    assert told.loc["a", "x high"] == pytest.approx(2 + 12.706, abs=1e-3)


def test_curves_tell_tests_whatever_was_rewarded():
    curve = passed_curve({("a", 0): frames()})
    assert curve["value"].tolist() == [0.1] * 4 + [0.2] * 4 and set(curve["arm"]) == {"a"}
