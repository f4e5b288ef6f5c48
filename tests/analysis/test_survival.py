"""The skim's bias by hand: who is kept, and what would weigh it up again."""

import json

import pytest

from t1core.analysis.survival import Survival, Survivor, cells_of


def trials(fate_of_last="cut"):
    """Six trials of one family, predicted to take 1 to 6 s; the longest is not kept, and the other long one is good."""
    return [
        Survivor(f"s-{i}", "chain", float(i), "kept" if i < 6 else fate_of_last, 0.7 if i == 5 else 0.1)
        for i in range(1, 7)
    ]


def test_lengths_are_thirds_of_the_steps_predictions():
    assert [length for _, length in cells_of(trials())] == ["short"] * 2 + ["middle"] * 2 + ["long"] * 2
    assert cells_of([Survivor("s", "chain", None, "kept", 0.0)]) == [("chain", "unknown")]


def test_a_kept_trial_weighs_one_over_its_cells_share():
    cells, metrics = Survival().observe(trials())
    by_length = {cell.length: cell for cell in cells}
    # Five of six are kept; each share is drawn to that by one trial's worth: (2 + 5/6) / 3 and (1 + 5/6) / 3.
    assert by_length["short"].kept_share == pytest.approx(17 / 18)
    assert by_length["long"].kept_share == pytest.approx(11 / 18)
    assert (by_length["long"].kept, by_length["long"].cut) == (1, 1)
    # Weights 18/17 (four trials) and 18/11 (one), over their mean of 1.17433.
    assert by_length["long"].weight == pytest.approx(1.39344, abs=1e-5)
    assert metrics["rollout/survival/kept_frac"] == pytest.approx(5 / 6)
    assert metrics["rollout/survival/reward_mean"] == pytest.approx(0.267213, abs=1e-6)
    assert metrics["rollout/survival/reward_bias"] == pytest.approx(0.22 - 0.267213, abs=1e-6)
    assert metrics["rollout/survival/weight_max"] == by_length["long"].weight
    assert metrics["rollout/length/long/cut"] == 1 and "rollout/length/short/cut" not in metrics


def test_what_goes_on_is_counted_apart_and_says_nothing_yet():
    survival = Survival()
    cells, metrics = survival.observe(trials("continued"))
    assert metrics["rollout/length/long/continued"] == 1 and metrics["rollout/survival/kept_frac"] == 1
    assert {cell.kept_share for cell in cells} == {1.0} and survival.lost == {}
    assert metrics["rollout/survival/reward_bias"] == pytest.approx(0)


def test_earlier_steps_count_for_less_and_a_resumed_run_has_the_same_numbers():
    survival = Survival()
    for _ in range(3):
        survival.observe(trials())
    assert survival.lost == {("chain", "long"): pytest.approx(1 + 0.9 + 0.81)}
    again = Survival.from_dict(json.loads(json.dumps(survival.to_dict())))
    assert again == survival and again.observe(trials()) == survival.observe(trials())


def test_a_step_without_a_kept_trial_has_counts_and_no_weights():
    cells, metrics = Survival().observe([Survivor("s", "chain", 1.0, "cut")])
    assert metrics == {"rollout/length/short/cut": 1.0} and cells[0].weight != cells[0].weight
