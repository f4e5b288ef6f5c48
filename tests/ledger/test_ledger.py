"""The ledger: in step with the tables, the code and the kept results; and numbers that were worked by hand."""

import json
import re
import shutil
from pathlib import Path

import pytest

from t1core.capacity import published
from t1core.ledger import Quoted, read_quoted
from t1core.ledger.computed import CAPACITY_CHECKS, computed_numbers, logits_as_printed, settings_of_preset
from t1core.ledger.contradictions import contradictions
from t1core.ledger.measured import measured_numbers
from t1core.ledger.page import STATUSES, ledger_page, ledger_rows

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "figures" / "results"


@pytest.fixture(scope="module")
def quoted():
    return read_quoted(ROOT / "figures" / "quoted")


@pytest.fixture(scope="module")
def rows(quoted):
    return [row for part in ledger_rows(quoted, results=RESULTS).values() for row in part]


def test_the_page_in_docs_is_what_tables_code_and_results_give():
    page = ledger_page(folder=ROOT / "figures" / "quoted", results=RESULTS)
    assert (ROOT / "docs" / "LEDGER.md").read_text() == page, (
        "make it again: t1 figures, or t1 ledger > docs/LEDGER.md"
    )


def test_every_quoted_number_has_exactly_one_row_with_a_place_and_a_status(quoted, rows):
    assert [row.key for row in rows] == quoted.frame["key"].tolist()
    assert {row.status for row in rows} == set(STATUSES)
    assert all(row.place for row in rows)
    assert all(row.ours for row in rows if row.status != "quoted")


def test_a_changed_number_changes_the_page_and_a_missing_one_is_named(quoted):
    frame = quoted.frame.copy()
    frame.loc[frame["key"] == "memory/logits_cp2", "value"] = 40.0
    changed = [row for part in ledger_rows(Quoted(frame), results=RESULTS).values() for row in part]
    (row,) = [row for row in changed if row.key == "memory/logits_cp2"]
    assert row.agrees is False
    with pytest.raises(KeyError, match="gap/with"):
        ledger_rows(Quoted(frame[frame["key"] != "gap/with"]), results=RESULTS)


def test_what_the_capacity_model_calls_quoted_is_what_the_tables_quote(quoted):
    checks = {check.what: check for check in published.checks()}
    for key, what in CAPACITY_CHECKS.items():
        assert quoted.value(key) == pytest.approx(checks[what].quoted, rel=0.002), key


def test_numbers_computed_by_hand(quoted):
    computed = {key: one.value for key, one in computed_numbers(quoted).items()}
    assert computed["tb21/t1"] == pytest.approx(5700 / 89)
    assert computed["lr/ratio_review"] == pytest.approx(15)
    assert computed["ppo/steps_planned"] == pytest.approx(87.890625)
    assert computed["reward/largest"] == 2.75
    assert computed["summary/sum"] == 86_733
    assert computed["memory/logits_cp4"] == pytest.approx(6 * 86_016 * 248_320 / 8 / 2**30)
    assert computed["pool/t1"] == 15_000
    assert logits_as_printed(quoted, cp=2) == pytest.approx(39.8, abs=0.05)


def test_every_setting_of_the_preset_is_the_quoted_one(quoted):
    apart = {key: (value, quoted.value(key)) for key, (value, _) in settings_of_preset().items()}
    assert {key: pair for key, pair in apart.items() if pair[0] != pytest.approx(pair[1])} == {}


def test_each_known_contradiction_has_a_row_of_its_own(quoted):
    found = {one.name: one for one in contradictions(quoted)}
    assert "15" in found["Critic's learning rate over the actor's"].verdict
    assert "64.04%" in found["57 of 89"].verdict
    assert "41 and the sum 57" in found["57 = 16 + 41"].verdict
    assert "29.6%" in found["Relative gain of RL"].verdict
    assert "3.75 epochs" in found["Number of steps"].verdict
    assert "7,762 to 12,810" in found["How much the wrong reducer inflated"].verdict
    assert "3.187 B" in found["Parameters of GatedDeltaNet"].verdict
    text = (ROOT / "docs" / "LEDGER.md").read_text()
    assert all(f"| {name} |" in text for name in found)


def test_measured_numbers_follow_the_kept_results(tmp_path):
    shutil.copytree(RESULTS, tmp_path / "results")
    path = tmp_path / "results" / "capacity_calibration.json"
    result = json.loads(path.read_text())
    for one in result["held_out"]:
        one["predicted_bytes"] = one["peak_bytes"] + 2**30
    path.write_text(json.dumps(result))
    told = measured_numbers(tmp_path / "results")["memory/crash_error"]
    assert told.interval.estimate == pytest.approx(1.0)
    assert measured_numbers(RESULTS)["memory/crash_error"].interval.estimate < 0.1


def test_no_row_breaks_the_table(rows):
    page = (ROOT / "docs" / "LEDGER.md").read_text()
    columns = {len(re.findall(r"(?<!\\)\|", line)) for line in page.splitlines() if line.startswith("| ")}
    assert columns == {5, 7}


def test_an_interval_is_told_where_there_is_one(rows):
    (row,) = [row for row in rows if row.key == "turns/end"]
    assert re.search(r"\d \[\d.*\] turns \(last 11 steps", row.ours)
    assert row.notebook == "notebooks/analyses/learning.ipynb"
