"""The report's counts, worked by hand."""

import math

import pandas as pd
import pytest
from pool_directories import write_task

from t1core.analysis import check_pool
from t1core.pools.report import (
    before_and_after,
    contamination,
    count_tests,
    difficulty,
    family_counts,
    near_duplicates,
    task_frame,
)
from t1core.pools.shingles import alike_within, closest, shingles
from t1core.pools.verdict import Standing, Verdict
from t1core.tasks.index import write_index
from t1core.tasks.pool import Pool


def frame(num_tests, **columns):
    count = len(num_tests)
    return pd.DataFrame(
        {
            "task_id": [f"t{i}" for i in range(count)],
            "family": ["f"] * count,
            "verifier": ["counted"] * count,
            "num_tests": num_tests,
            "nop_passed": [0.0] * count,
            "standing": ["not audited"] * count,
        }
        | columns
    )


def test_the_scale_is_the_ninetieth_percentile_up_to_the_next_five():
    found = count_tests(frame([*range(1, 10), 19, 35]))
    assert (found.median, found.p90, found.most, found.suggested_scale) == (6.0, 19.0, 35, 20)
    assert count_tests(frame([1, 2, 2])).suggested_scale == 5
    assert count_tests(frame([20, 20])).suggested_scale == 20
    with pytest.raises(ValueError, match="nothing to scale"):
        count_tests(frame([1], verifier=["binary"]))


def test_families_are_counted_with_the_tasks_that_pass_untouched():
    found = family_counts(frame([2, 4, 6], family=["a", "b", "b"], nop_passed=[1.0, math.nan, 2.0]))
    assert list(found.index) == ["b", "a"]
    assert found.loc["b"].to_dict() == {"tasks": 2, "share": 2 / 3, "median_tests": 5.0, "nop_passing": 1}


def test_before_and_after_are_counted_by_where_tasks_stand():
    found = before_and_after(
        frame(
            [2, 4, 6, 8],
            standing=["accept", "accept", "reject", "not audited"],
            nop_passed=[0.0, 0.0, 1.0, 0.0],
        )
    )
    assert found["tasks"].to_dict() == {"all": 4, "audited": 3, "accept": 2, "borderline": 0, "reject": 1}
    assert found.loc["accept", "median_tests"] == 3.0 and found.loc["all", "nop_passing"] == 1


def test_difficulty_counts_tasks_and_not_trials():
    trials = pd.DataFrame(
        {
            "task_id": ["t0", "t0", "t1", "t1", "t2", "elsewhere", "t2"],
            "reward": [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, math.nan],
            "solved": [True, False, True, True, False, True, False],
        }
    )
    (row,) = difficulty(frame([1, 1, 1]), trials).to_dict("records")
    assert row == {"tried": 3, "never": 1, "sometimes": 1, "always": 1, "solved_frac": 0.5}


def test_similarity_is_that_of_runs_of_three_words():
    assert shingles("One, two THREE four") == {("one", "two", "three"), ("two", "three", "four")}
    texts = {
        "a": "one two three four",
        "b": "one two three five",
        "c": "one two three four.",
        "d": "far away",
    }
    assert [(pair.one, pair.other, pair.jaccard) for pair in alike_within(texts, at_least=0.3)] == [
        ("a", "c", 1.0),
        ("a", "b", 1 / 3),
        ("b", "c", 1 / 3),
    ]
    assert alike_within(texts, at_least=0.5) == [alike_within(texts, at_least=0.3)[0]]


def test_a_long_run_that_is_shared_counts_before_similarity():
    long_run = " ".join(f"w{i}" for i in range(13))
    others = {"long": f"{long_run} " + " ".join(f"z{i}" for i in range(60)), "like": "w0 w1 w2 w3"}
    assert closest({"a": f"x {long_run}"}, others)["a"].other == "long"
    assert closest({"a": "w0 w1 w2 w3 w4"}, others)["a"].other == "like"
    assert closest({"a": "nothing of that"}, others) == {}
    short = {"a": "w0 w1 w2"}
    assert closest(short, {"b": "w0 w1 w2"})["a"].shares_long is False


@pytest.fixture
def pool(tmp_path):
    for name, instruction in (
        ("a", "Write hello moon to the file out.txt now."),
        ("b", "Write hello moon to the file out.txt."),
        ("c", "Remove every log below /app."),
    ):
        write_task(tmp_path / "pool" / name, instruction=instruction)
    write_index(tmp_path / "pool", nop_passed={"a": ("test_outputs.py::test_there",)})
    return Pool.open(tmp_path / "pool")


def test_a_pools_rows_take_what_an_audit_found_of_these_very_tasks(pool, tmp_path):
    hashes = {entry.task_id: entry.content_hash for entry in pool.entries}
    verdicts = [
        Verdict("a", hashes["a"], "f", Standing.ACCEPT, (), nop_passed=()),
        Verdict("b", "of another content", "f", Standing.REJECT, (), nop_passed=("x",)),
    ]
    (tmp_path / "audit.jsonl").write_text("".join(f"{one.to_line()}\n" for one in verdicts))
    rows = task_frame(pool, verdicts=tmp_path / "audit.jsonl").set_index("task_id")
    assert rows["standing"].to_dict() == {"a": "accept", "b": "not audited", "c": "not audited"}
    assert rows.loc["a", "nop_passed"] == 0 and math.isnan(rows.loc["b", "nop_passed"])
    assert task_frame(pool).set_index("task_id").loc["a", "nop_passed"] == 1
    assert len(task_frame(pool, number=2)) == 2


def test_instructions_that_are_alike_are_found_within_a_pool_and_against_another(pool):
    tasks = task_frame(pool)
    (pair,) = near_duplicates(pool, tasks).to_dict("records")
    assert (pair["one"], pair["other"], pair["jaccard"]) == ("a", "b", 6 / 7)
    shared = contamination(pool, tasks[tasks["task_id"] == "a"], pool, tasks[tasks["task_id"] != "a"])
    assert shared[["one", "other"]].values.tolist() == [["a", "b"]]


def test_what_must_hold_of_a_pool_can_fail():
    good = frame([2, 3], standing=["accept", "reject"], nop_passed=[1.0, 3.0])
    assert [check.holds for check in check_pool(good)] == [True, True, True]
    bad = frame([2, 0], task_id=["t", "t"], standing=["accept", "accept"], nop_passed=[2.0, 0.0])
    assert [check.holds for check in check_pool(bad)] == [False, False, False]
