"""Flips, gaps and tails of a few tokens worked by hand, and the controls that a measurement must pass."""

import numpy as np
import pandas as pd
import pytest

from t1core.analysis.checks import assert_holds
from t1core.analysis.routing_gap import (
    AHEAD,
    SAMPLED,
    WHOLE,
    check_routing_gap,
    flip_statistics,
    flips_by_layer,
    gap_statistics,
    replay_effect,
    tails,
)
from t1core.view import figure_routing_gap


def test_gap_statistics_of_four_tokens():
    rollout = np.log(np.array([0.5, 0.5, 0.25, 0.9]))
    trainer = np.log(np.array([0.5, 0.55, 0.125, 0.1]))
    # The last token is a prompt's: a gap of log 9 that must not count.
    found = gap_statistics(
        trainer, rollout_logprobs=rollout, mask=np.array([1, 1, 1, 0]), rows=np.array([0, 0, 1, 1])
    )
    gaps = [0.0, np.log(1.1), np.log(2.0)]
    assert found["tokens"] == 3
    assert found["mean"] == pytest.approx((np.log(1.1) - np.log(2)) / 3)
    assert found["abs_mean"] == pytest.approx(sum(gaps) / 3)
    assert found["abs_max"] == pytest.approx(np.log(2))
    # k3 of a ratio r is r - 1 - log r: 0, 0.1 - log 1.1, -0.5 + log 2
    assert found["k3"] == pytest.approx((0.1 - np.log(1.1) - 0.5 + np.log(2)) / 3)
    # 1.1 is above 1.01 and 1.05 and below 1.2; exactly 2 is not above 2.
    assert [found[f"tail_{tau}"] for tau in ("1.01", "1.05", "1.2")] == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    # Row means log(1.1)/2 (two tokens) and log 2 (one): weights 2/3 and 1/3.
    mean = sum(gaps) / 3
    spread = (np.log(1.1) / 2 - mean) ** 2 * (2 / 3) ** 2 + (np.log(2) - mean) ** 2 * (1 / 3) ** 2
    assert found["abs_mean_error"] == pytest.approx(1.96 * np.sqrt(spread))


def test_a_log_prob_that_is_not_finite_is_never_averaged_away():
    with pytest.raises(AssertionError, match="not finite"):
        gap_statistics(
            np.array([-np.inf, -1]), rollout_logprobs=-np.ones(2), mask=np.ones(2), rows=np.zeros(2)
        )


def test_flips_are_counted_by_choice_by_token_and_by_layer():
    flips = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 1, 1]], dtype=bool)
    table = flip_statistics(flips, mask=np.array([1, 1, 1, 0])).set_index("layer")
    assert table.loc[WHOLE, "flip_frac"] == pytest.approx(3 / 9)
    assert table.loc[WHOLE, "flip_token_frac"] == pytest.approx(2 / 3)
    assert table.loc[[0, 1, 2], "flip_frac"].tolist() == pytest.approx([1 / 3, 2 / 3, 0])


def measured(**changes):
    """A frame as the measurement gives it: free gaps of 4, replayed ones of 1, in units that grow with depth."""
    rows = []
    for model, depth in (("policy", 2), ("experts", 2), ("experts", 4), ("dense", 2)):
        for engine, trainer in (("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16")):
            for weights in (SAMPLED, AHEAD):
                for horizon in ("long", "short"):
                    for routing in ("replayed", "free"):
                        exact = (engine, trainer, weights) == ("fp32", "fp32", SAMPLED)
                        flip = 0.0 if exact or model == "dense" or routing == "replayed" else 0.01 * depth
                        gap = (1e-6 if exact else 1e-3 * depth) * (4 if flip else 1)
                        condition = dict(
                            model=model, num_layers=depth, horizon=horizon, engine=engine, trainer=trainer,
                            weights=weights, routing=routing, flip_frac=flip, flip_token_frac=flip,
                        )  # fmt: skip
                        numbers = dict(
                            abs_mean=gap,
                            k3=gap**2,
                            **{f"tail_{t}": gap for t in ("1.01", "1.05", "1.2", "2")},
                        )
                        rows.append(condition | numbers | {"layer": WHOLE})
                        rows += [condition | {"layer": layer} for layer in range(depth)]
    frame = pd.DataFrame(rows)
    for column, value in changes.items():
        frame.loc[(frame["model"] == "dense") & (frame["routing"] == "free"), column] = value
    return frame


def test_what_replay_takes_away_is_a_share_of_the_free_gap():
    table = replay_effect(measured()).set_index(
        ["model", "num_layers", "horizon", "engine", "trainer", "weights"]
    )
    assert table.loc[("experts", 4, "long", "bf16", "fp32", SAMPLED)].tolist() == pytest.approx(
        [0.016, 0.004, 0.75]
    )
    assert table.loc[("dense", 2, "long", "bf16", "fp32", SAMPLED), "saved_frac"] == pytest.approx(0)


def test_layers_and_tails_come_out_in_long_form():
    assert len(flips_by_layer(measured())) == (2 + 2 + 4 + 2) * 3 * 2 * 2
    shares = tails(measured())
    assert sorted(shares["tau"].unique()) == [1.01, 1.05, 1.2, 2.0]
    assert len(shares) == 4 * 3 * 2 * 2 * 2 * 4


def test_the_controls_hold_and_each_notices_its_fault():
    assert_holds(check_routing_gap(measured()))
    for column, value, claim in (
        ("flip_frac", 0.01, "a dense model never flips"),
        ("abs_mean", 0.5, "replaying a dense model changes nothing"),
    ):
        broken = [check.claim for check in check_routing_gap(measured(**{column: value})) if not check.holds]
        assert claim in broken
    frame = measured()
    frame.loc[(frame["engine"] == "fp32") & (frame["weights"] == SAMPLED), "abs_mean"] = 0.01
    broken = [check.claim for check in check_routing_gap(frame) if not check.holds]
    assert broken == ["in fp32 on both sides the same weights agree"]


def test_the_figure_says_what_was_found():
    title = " ".join(figure_routing_gap(measured()).get_suptitle().split())
    assert title == (
        "4 layers, bf16 engine: 4% of tokens flip somewhere, replay takes 75% of the gap (0.0160 to 0.0040 nats); "
        "one step of staleness leaves 0.0040"
    )
