"""Assertions gained and lost: kinds by name, windows by reward alone, changes with planted ones found."""

import pandas as pd
import pytest

from t1core.analysis import assertion_changes, assertion_kind, flat_windows, window_gain
from tests.analysis.frames_by_hand import trials_frame


@pytest.mark.parametrize(
    ("family", "name", "kind"),
    [
        ("write", "test_outputs.py::test_bread_log_content", "write: content"),
        ("append", "test_outputs.py::test_arrow_txt_line_3", "append: line"),
        ("move", "test_outputs.py::test_crane_txt_moved", "move: moved"),
        ("own", "test_star", "own: whole"),
    ],
)
def test_a_kind_is_the_family_and_the_name_without_words_suffixes_and_numbers(family, name, kind):
    assert assertion_kind(family, name) == kind


def _trials(means: list[float]) -> pd.DataFrame:
    return trials_frame(
        *(
            {"trial_id": f"s{step}-{n}", "step": step, "reward": mean + 0.02 * (n - 1)}
            for step, mean in enumerate(means)
            for n in range(3)
        )
    )


def test_the_early_window_is_the_one_whose_reward_is_nearest_and_that_leaves_a_windows_room():
    trials = _trials([0.1, 0.1, 0.31, 0.29, 0.5, 0.5, 0.3, 0.3])
    assert flat_windows(trials, size=2) == ([2, 3], [6, 7])
    assert window_gain(trials, early=[2, 3], late=[6, 7]).estimate == pytest.approx(0.0)


def test_a_run_too_short_or_without_an_equal_window_is_refused():
    with pytest.raises(ValueError, match="has 5 steps; two windows of 2 with as many between need 6"):
        flat_windows(_trials([0.1] * 5), size=2)
    with pytest.raises(ValueError, match="no earlier 2 steps earn what the last 2 do"):
        flat_windows(_trials([0.1, 0.1, 0.1, 0.1, 0.9, 0.9]), size=2)


def _tests(*, content: tuple[int, int], line: tuple[int, int], trials: int = 20) -> pd.DataFrame:
    """In steps 0 and 9: of 20 trials so many pass the assertion `content`, and `line`."""
    rows = []
    for place, step in enumerate((0, 9)):
        for n in range(trials):
            for kind, passes in (("bread_log_content", content[place]), ("bread_log_line_1", line[place])):
                status = "passed" if n < passes else "failed"
                rows.append((f"s{step}-{n}", "write", "t", step, "accepted", f"x::test_{kind}", status))
    return pd.DataFrame(rows, columns=["trial_id", "family", "task_id", "step", "outcome", "name", "status"])


def test_a_gain_and_a_loss_that_cancel_are_both_found():
    changes = assertion_changes(_tests(content=(4, 16), line=(16, 4)), early=[0], late=[9])
    assert changes[["kind", "change"]].values.tolist() == [
        ["write: content", "gained"],
        ["write: line", "lost"],
    ]
    assert changes["gain"].tolist() == pytest.approx([0.6, -0.6])
    assert changes["trials_early"].tolist() == [20, 20]


def test_a_change_within_chance_is_unclear_and_too_few_results_have_no_row():
    changes = assertion_changes(_tests(content=(9, 11), line=(10, 10)), early=[0], late=[9])
    assert set(changes["change"]) == {"unclear"}
    few = assertion_changes(_tests(content=(4, 16), line=(16, 4), trials=19), early=[0], late=[9])
    assert few.empty and "change" in few
    cut = _tests(content=(4, 16), line=(16, 4)).assign(outcome="cut")
    assert assertion_changes(cut, early=[0], late=[9]).empty
