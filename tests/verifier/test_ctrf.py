"""Reading reports: every rule of the parser's table, on reports written out by hand."""

import json

import pytest

from t1core.records import TestStatus
from t1core.verifier.ctrf import MAX_REPORT_BYTES, parse_report
from t1core.verifier.fork_server import read_findings

NAMES = ("test_outputs.py::test_a", "test_outputs.py::test_b", "test_outputs.py::test_c")


def document(*tests: dict, **summary) -> bytes:
    """A report of the present plugin."""
    passed = sum(test.get("status") == "passed" for test in tests)
    counts = {"tests": len(tests), "passed": passed} | summary
    return json.dumps({"specVersion": "1.0.0", "results": {"summary": counts, "tests": list(tests)}}).encode()


def entry(name: str, status: str = "passed", duration: object = 3) -> dict:
    return {"name": f"test_outputs.py::{name}", "status": status, "duration": duration}


def test_counts_come_from_the_tests_in_the_expected_order():
    report = parse_report(
        document(entry("test_c"), entry("test_a"), entry("test_b", "failed")), expected=NAMES
    )
    assert [test.status.value for test in report.tests] == ["passed", "failed", "passed"]
    assert report.passed == 2
    assert report.tests[0].duration_s == 0.003
    assert (report.flags, report.unusable, report.version) == ((), "", "1.0.0")


def test_a_summary_that_contradicts_the_tests_is_flagged_and_not_believed():
    data = document(
        entry("test_a"), entry("test_b", "failed"), entry("test_c", "failed"), passed=20, tests=20
    )
    report = parse_report(data, expected=NAMES)
    assert report.passed == 1
    assert report.flags == ("summary-disagrees",)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (document(entry("test_a"))[:-3], "not whole JSON"),
        (b"[" * 100_000, "not whole JSON"),
        (b"\xff\xfe", "not whole JSON"),
        (b"[1]", "no results.tests"),
        (b'{"results": {"tests": {}}}', "no results.tests"),
        (document(), "no tests: collection failed"),
        (document(entry("test_a", duration=float("nan"))), "holds NaN"),
        (document(entry("test_a", duration=float("inf"))), "holds Infinity"),
        (document({"name": "x"}), "a test without name or status"),
        (document({"name": 3, "status": "passed"}), "a test without name or status"),
        (b" " * MAX_REPORT_BYTES + b"{}", "larger than any honest report"),
    ],
)
def test_an_unusable_report_says_why_and_passes_nothing(data, why):
    report = parse_report(data, expected=NAMES)
    assert report.unusable == why
    assert report.passed == 0
    assert [test.name for test in report.tests] == list(NAMES)


def test_a_duplicate_passes_only_if_every_entry_passed():
    data = document(
        entry("test_a", "failed"),
        entry("test_a"),
        entry("test_b"),
        entry("test_b", "failed"),
        entry("test_c"),
    )
    report = parse_report(data, expected=NAMES)
    assert [test.status.value for test in report.tests] == ["failed", "failed", "passed"]
    assert report.flags == ("duplicate:test_outputs.py::test_a", "duplicate:test_outputs.py::test_b")


def test_missing_and_unexpected_names_are_flagged_and_earn_nothing():
    report = parse_report(
        document(entry("test_a"), entry("test_z"), entry("test_q")),
        expected=NAMES,
        ignored=["test_outputs.py::test_q"],
    )
    assert report.passed == 1
    assert [test.status for test in report.tests[1:]] == [TestStatus.OTHER, TestStatus.OTHER]
    assert report.flags == (
        "missing:test_outputs.py::test_b",
        "missing:test_outputs.py::test_c",
        "unexpected:test_outputs.py::test_z",
    )


def test_unknown_statuses_and_unfinished_tests_do_not_pass():
    data = document(
        entry("test_a", "PASSED"), entry("test_b", duration=-1_700_000_000_000), entry("test_c", "skipped")
    )
    report = parse_report(data, expected=NAMES)
    assert [test.status.value for test in report.tests] == ["other", "other", "skipped"]
    assert report.flags == ("status:test_outputs.py::test_a", "unfinished:test_outputs.py::test_b")


def test_the_old_plugins_merged_parameters_stand_for_each_of_them():
    expected = ("test_outputs.py::test_a[1]", "test_outputs.py::test_a[2]", "test_outputs.py::test_b")
    old = {"results": {"tests": [entry("test_a", "passed", 0.25), entry("test_b", "failed", 0.5)]}}
    report = parse_report(json.dumps(old).encode(), expected=expected)
    assert [test.status.value for test in report.tests] == ["passed", "passed", "failed"]
    assert report.tests[0].duration_s == 0.25
    assert (report.flags, report.version) == ((), "0")


def test_a_duration_beyond_any_float_is_unfinished_and_no_error():
    data = document(entry("test_a", duration=10**400), entry("test_b", duration=True), entry("test_c"))
    report = parse_report(data, expected=NAMES)
    assert [test.status.value for test in report.tests] == ["other", "passed", "passed"]
    assert report.flags == ("unfinished:test_outputs.py::test_a",)


def test_text_that_is_no_unicode_is_written_out_and_can_be_stored():
    odd = {"name": "\ud800", "status": "passed", "duration": 1}
    failed = entry("test_a", "failed") | {"message": "file \udcff missing"}
    report = parse_report(document(odd, failed, entry("test_b"), entry("test_c")), expected=NAMES)
    assert report.tests[0].message == "file \\udcff missing"
    assert report.flags == ("unexpected:\\ud800",)
    "".join((*report.flags, *(test.message for test in report.tests))).encode()


@pytest.mark.parametrize("notes", [b"", b"{}", b"[1]", b"[", b"\xff", b"[" * 100_000])
def test_a_seal_that_cannot_be_read_is_no_seal(notes):
    assert read_findings(notes) is None


def test_the_findings_of_a_seal_are_bounded_and_plain_text():
    assert read_findings(b"[]") == ()
    assert read_findings(b'["\\ud800"]') == ("\\ud800",)
    assert [len(word) for word in read_findings(json.dumps(["x" * 999] * 99).encode())] == [200] * 20
