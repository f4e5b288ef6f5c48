"""Frames of the analyses, against hand-worked numbers."""

import numpy as np
import pandas as pd
import pytest

from t1core import analysis
from t1core.analysis import (
    audit_shares,
    campaign_points,
    case_table,
    context_parallel_peaks,
    evaluated,
    gap_adds_up,
    heldout_by_run,
    lost_by_family,
    replica_times,
    reward_by_passed,
    route_sizes,
    solved_by,
    stage_table,
    summary_regions,
    value_noise,
)
from t1core.analysis.rewarding import farming_pays, reward_by_turns
from t1core.analysis.tests_per_task import quantile
from t1core.capacity.frames import expert_parallel_terms, plan_terms, split_curve
from t1core.capacity.plans import Plan
from t1core.verifier.shaping import LengthShaping
from tests.analysis.frames_by_hand import trials_frame


def test_audit_shares_weigh_steps_by_what_they_count():
    metrics = pd.DataFrame(
        {
            "rollout/accepted": [10.0, 30.0],
            "rollout/turns_mean": [2.0, 2.0],
            "tito/relation/strict": [1.0, 0.5],
            "tito/relation/retokenized": [0.0, 0.5],
            "tito/placeholder_frac": [0.0, 0.1],
            "tito/drift_frac": [0.0, 0.0],
            "tito/delivered_token_frac": [1.0, 1.0],
            "train/tokens": [100.0, 100.0],
            "train/loss_tokens": [10.0, 10.0],
        }
    )
    shares = audit_shares(metrics)
    assert shares["strict"] == pytest.approx(62.5)
    assert shares["retokenized"] == pytest.approx(37.5)
    assert shares["placeholder"] == pytest.approx(5.0)
    assert (shares["drift"], shares["delivered"], shares["boundaries"]) == (0.0, 100.0, 40.0)


def test_a_gap_adds_up_by_tokens_or_by_their_root():
    frame = gap_adds_up(0.021, tokens=np.array([30_000.0]))
    assert frame["coherent"].iloc[0] == pytest.approx(630)
    assert frame["independent"].iloc[0] == pytest.approx(3.637, abs=1e-3)


def test_noise_of_a_head_explains_less_than_nothing():
    frame = value_noise(largest=6, points=7)
    assert frame["explained_variance"].tolist() == [0, -1, -4, -9, -16, -25, -36]


def test_the_least_bytes_of_a_route_are_the_choices_of_a_set():
    sizes = route_sizes(layers=48, experts=256, topk=8, packed_bytes=318, quoted_bytes=1536).set_index(
        "encoding"
    )
    assert sizes.loc["one byte an id", "bytes"] == 384
    assert sizes.loc["the least possible", "bytes"] == pytest.approx(291.2486, abs=1e-3)


def test_lost_trials_are_counted_by_family_and_failures_are_not_lost():
    rows = [{"family": "a", "outcome": outcome} for outcome in ("accepted", "cut", "surplus", "failed")]
    frame = lost_by_family(trials_frame(*rows, {"family": "b"}, {"family": "b"}))
    assert frame["family"].tolist() == ["a", "b"]
    assert frame["trials"].tolist() == [3, 2]
    assert frame["lost_frac"].tolist() == pytest.approx([2 / 3, 0])


def test_levels_are_thirds_of_the_tasks_by_tests_and_shares_are_by_evaluation():
    rows = [
        {
            "kind": "eval",
            "task_id": f"t{n}",
            "num_tests": n,
            "step": step,
            "solved": bool(step) and n < 3,
            "split": "heldout",
        }
        for n in range(1, 7)
        for step in (0, 8)
    ]
    attempts = evaluated(trials_frame(*rows))
    table = solved_by(attempts, by="level").set_index(["level", "when"])["solved"]
    assert table["few", "after"] == 1.0 and table["few", "before"] == 0.0
    assert table["many", "after"] == 0.0
    with pytest.raises(ValueError, match="before and after need two"):
        evaluated(trials_frame({"kind": "eval"}))


def test_tests_gained_over_turns_gained():
    rows = [{"step": step, "passed": 1 + 2 * step, "num_turns": 2 + step} for step in range(4)]
    assert analysis.tests_per_extra_turn(trials_frame(*rows)) == pytest.approx(2.0)
    flat = [{"step": step, "passed": step, "num_turns": 2} for step in range(4)]
    assert np.isnan(analysis.tests_per_extra_turn(trials_frame(*flat)))


def test_quantiles_of_tests_a_task_count_each_task_once():
    rows = [{"task_id": f"t{n}", "num_tests": 4 if n < 5 else 19} for n in range(10)]
    frame = analysis.tests_per_task(trials_frame(*rows, *rows))
    assert frame["tasks"].tolist() == [5, 5]
    assert (quantile(frame, 0.5), quantile(frame, 0.51)) == (4, 19)


def test_rewards_and_shaping_are_the_products_own():
    table = reward_by_passed((4, 40)).set_index(["total", "passed", "kind"])["reward"]
    assert table[4, 2, "ratio"] == pytest.approx(0.2)
    assert table[40, 40, "dense"] == 2.0
    assert table[4, 3, "binary"] == 0.0
    curve = reward_by_turns((4, 5), turns=(25, 50), shaping=LengthShaping())
    pays = farming_pays(curve, farmed=5, farmed_turns=50, healthy_turns=25).set_index("shaping")
    assert pays["farmed"].to_dict() == pytest.approx(
        {"none": 0.25, "additive": 0.21, "multiplicative": 0.1875}
    )
    assert pays["farming_pays"].to_dict() == {"none": True, "additive": True, "multiplicative": False}


def test_a_stricter_penalty_would_make_farming_a_loss():
    curve = reward_by_turns((4, 5), turns=(25, 50), shaping=LengthShaping(penalty_tests=1.2))
    pays = farming_pays(curve, farmed=5, farmed_turns=50, healthy_turns=25).set_index("shaping")
    assert not pays.loc["additive", "farming_pays"]


def test_summary_regions_are_the_windows_arithmetic():
    at = summary_regions(window=86_016, asked=8_192, reserve=4_000, trigger_free=8_000, prompt=78_541)
    told = dict(zip(at["bound"], at["tokens"], strict=True))
    assert told["longest feasible"] == 77_824
    assert told["asked from"] == 78_016
    assert told["asked up to"] == 82_016
    assert told["ours"] == 86_016 - 8_192 - 8_192


def test_cases_count_commands_and_those_typed_before():
    turns = pd.DataFrame(
        {
            "commands": [[{"keystrokes": "ls\n"}, {"keystrokes": "ls\n"}], [{"keystrokes": "cat a\n"}], []],
            "is_parse_error": [False, False, True],
            "is_wait_expired": [False, True, False],
            "is_completion_claim": [False, False, False],
        }
    )
    (row,) = case_table({"one": turns}).to_dict("records")
    assert (row["turns"], row["commands"], row["parse_errors"], row["waits_expired"]) == (3, 3, 1, 1)
    assert row["repeated_frac"] == pytest.approx(1 / 3)


def test_terms_of_plans_are_the_closed_form_and_expert_parallelism_cancels():
    plan = Plan(tp=2, pp=4, cp=4, ep=16, dp=2)
    terms = plan_terms({"a": plan}, wall=86_016).set_index("term")["gib"]
    assert terms["logits"] == pytest.approx(14.92, abs=0.01)
    sweep = expert_parallel_terms(plan, degrees=(1, 16))
    assert sweep["optimiser_gib"].nunique() == 1
    assert sweep["optimiser_gib"].iloc[0] == pytest.approx(12 * 116e9 / 64 / 2**30)
    assert sweep["weights_gib"].iloc[0] > sweep["weights_gib"].iloc[1]


def test_the_best_split_is_marked_and_replicas_share_the_groups():
    curve = split_curve(rollout=30.0, train=90.0, num_gpus=4)
    assert curve["is_best"].tolist() == [True, False, False]
    assert curve["step"].tolist() == [30.0, 45.0, 90.0]
    assert replica_times(256, rate=4.35)["value"].iloc[0] == pytest.approx(58.85, abs=0.01)


def test_slices_peaks_come_from_the_benchmarks_result():
    part = {"slice_peak_over_whole": 0.5, "state": {"forward_is_bit_exact": True, "g": 1e-7}}
    frame = context_parallel_peaks({"operator": [{"tokens": 8, "whole": {}, "2 slices": part}]})
    assert frame[["slices", "peak_over_whole"]].values.tolist() == [[1, 1.0], [2, 0.5]]


def test_points_and_bands_of_the_quoted_campaigns_stay_apart():
    names = ["t1_10", "t1_20_60_low", "t1_20_60_high", "t1_110_low", "t1_110_high", "rst_low", "rst_high"]
    topic = pd.DataFrame({"name": names, "x": [10.0] + [np.nan] * 6, "value": range(7), "unit": "%"})
    frame = campaign_points(topic)
    assert frame["x"].notna().sum() == 1
    bands = frame[frame["band_from"].notna()]
    assert bands[["campaign", "low", "high"]].values.tolist() == [["t1", 1, 2], ["t1", 3, 4], ["rst", 5, 6]]


def test_held_out_gains_by_run_and_stages_in_standard_errors():
    rows = [
        {"kind": "eval", "split": "heldout", "task_id": f"t{n}", "step": step, "solved": step > 0}
        for n in range(3)
        for step in (0, 5)
    ]
    frame = heldout_by_run({"one": trials_frame(*rows)})
    assert frame[["run", "steps", "solved_gain"]].values.tolist() == [["one", 5, 1.0]]
    scores = {"base": 43.8, "rst_sft": 49.4, "rl_tmax": 47.2, "rl_rst_38k": 59.9, "t1": 64.0}
    table = stage_table(scores, lhtb={}, tbh={}, tasks=89)
    assert table.loc["SFT", "errors from SFT"] == 0
    assert table.loc["T1", "errors from SFT"] == pytest.approx(1.966, abs=1e-3)
