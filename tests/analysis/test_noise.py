"""Standard errors, power and the smallest gain that a score can show, against hand-worked numbers."""

import math

import numpy as np
import pytest

from t1core.analysis import difference_z, noise_table, power, power_curve, score_se, smallest_gain


def test_the_standard_error_of_a_score_of_equally_hard_tasks_is_the_binomials():
    assert score_se(0.6, tasks=89) == pytest.approx(math.sqrt(0.24 / 89))
    assert score_se(0.6, tasks=89) == pytest.approx(0.0519, abs=1e-4)
    assert score_se(0.6, tasks=89, attempts=3) == pytest.approx(math.sqrt(0.24 / 267))


def test_tasks_that_differ_make_fixed_tasks_surer_and_attempts_do_not_help_against_drawn_ones():
    # p = 1/2 from tasks that are always or never solved: nothing is left to chance but the draw of tasks.
    assert score_se(0.5, tasks=100, between=0.25) == 0
    assert score_se(0.5, tasks=100, attempts=50, between=0.25, drawn=True) == pytest.approx(0.05)
    half = score_se(0.5, tasks=100, attempts=2, between=0.125, drawn=True)
    assert half == pytest.approx(math.sqrt(0.125 / 200 + 0.125 / 100))
    with pytest.raises(ValueError, match=r"vary by p \(1 - p\) = 0.2500 at most"):
        score_se(0.5, tasks=10, between=0.3)


def test_simulated_scores_spread_as_computed():
    chances = np.repeat([0.2, 0.8], 50)
    drawn = np.random.default_rng(0).binomial(3, chances, size=(4000, 100)) / 3
    assert drawn.mean(axis=1).std() == pytest.approx(
        score_se(0.5, tasks=100, attempts=3, between=0.09), rel=0.05
    )


def test_power_is_the_level_without_a_gain_and_four_fifths_at_the_smallest_gain():
    assert power(0.0, se=0.05) == pytest.approx(0.05)
    assert power(smallest_gain(se=0.05), se=0.05) == pytest.approx(0.8, abs=1e-3)
    assert smallest_gain(se=0.05) == pytest.approx((1.95996 + 0.84162) * math.sqrt(2) * 0.05, rel=1e-5)
    assert power(-0.1, se=0.05) == pytest.approx(power(0.1, se=0.05))


def test_a_difference_is_told_in_standard_errors_of_a_difference():
    assert difference_z(0.494, 0.64, tasks=89) == pytest.approx(0.146 / math.sqrt(2 * 0.567 * 0.433 / 89))
    assert difference_z(0.5, 0.4, tasks=89) < 0


def test_the_tables_have_a_row_a_case():
    table = noise_table(0.5, tasks=100, attempts=(1, 4), between_shares=(0.0, 0.5))
    assert table["se_fixed"].tolist() == pytest.approx(
        [0.05, 0.025, math.sqrt(0.125 / 100), math.sqrt(0.125 / 400)]
    )
    curve = power_curve(np.array([0.0, 0.2]), p=0.5, tasks=100, attempts=(1,))
    assert curve["power"].tolist() == pytest.approx([0.05, power(0.2, se=0.05)])
