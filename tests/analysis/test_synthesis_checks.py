"""What must hold of a synthesis, each claim broken once, and what its figure says."""

import dataclasses

import pandas as pd

from t1core.analysis import check_synthesis
from t1core.pools.llm.endpoint import Cost
from t1core.pools.synthesis.table import Summary
from t1core.view import figure_synthesis

TABLE = pd.DataFrame(
    {
        "round": [0, 1, 2],
        "tried": [8, 4, 4],
        "kept": [8, 3, 2],
        "solution_lines": [3.0, 9.0, 21.0],
        "tests": [4.0, 8.0, 14.0],
        "asserts": [5.0, 10.0, 22.0],
        "num_tasks": [2, 2, 2],
        "pass_at_1": [0.9, 0.8, 0.5],
        "pass_at_k": [1.0, 1.0, 0.5],
        "tests_passed": [0.95, 0.9, 0.8],
        "computed": [0.94, 0.83, 0.65],
    }
)
SUMMARY = Summary({"seed": 0}, {"error_rate": 0.02}, TABLE, {"mutants": 3}, Cost())


def held(**columns):
    summary = dataclasses.replace(SUMMARY, table=TABLE.assign(**columns))
    return [check.holds for check in check_synthesis(summary)]


def test_a_sound_synthesis_breaks_nothing_and_each_claim_can_be_broken():
    assert held() == [True] * 4
    assert held(kept=[8, 5, 2]) == [False, True, True, True]
    assert held(pass_at_k=[1.0, 0.7, 0.5]) == [True, False, True, True]
    assert held(tests_passed=[0.95, 0.9, 0.4]) == [True, False, True, True]
    assert held(solution_lines=[3.0, 9.0, 3.0]) == [True, True, False, True]
    assert held(asserts=[5.0, 10.0, 4.0]) == [True, True, True, False]


def test_a_synthesis_that_kept_nothing_has_not_grown():
    assert held(kept=[8, 0, 0]) == [True, True, False, False]


def test_the_figure_says_how_tasks_grew_and_how_the_policy_fared():
    title = " ".join(figure_synthesis(SUMMARY).get_suptitle().split())
    assert (
        "5 of 8 candidates kept; in 2 rounds solutions grow from 3 to 21 lines, asserts from 5 to 22" in title
    )
    assert "a script that forgets 2% of commands solves 90%, then 50%" in title
    nothing = dataclasses.replace(SUMMARY, table=TABLE.assign(kept=[8, 0, 0]))
    assert figure_synthesis(nothing).get_suptitle() == "No candidate was kept"
