"""Reading a CTRF report strictly. The summary is never believed: counts come from `tests[]` and the expected
names.

| what the report has                        | what it means                                            |
|--------------------------------------------|----------------------------------------------------------|
| nothing, cut or broken JSON, NaN, no tests | unusable, with the reason                                |
| a test without a name or status            | unusable                                                 |
| a name twice                               | passed only if every entry passed; flagged               |
| a status we do not know                    | not passed; flagged                                      |
| a name the task does not expect            | not counted; flagged                                     |
| an expected name missing                   | not passed; flagged                                      |
| a summary that contradicts `tests[]`       | flagged                                                  |
| a negative or absurd duration              | not passed (the run was cut inside the test); flagged    |
| text that is no Unicode (lone surrogates)  | written out as escapes, in names and messages alike      |
| old plugin: one entry for all parameters   | its status holds for each expected parameter             |
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from t1core.records import TestResult, TestStatus

MAX_REPORT_BYTES = 8 << 20
MAX_MESSAGE_CHARS = 2000
_MAX_DURATION_S = 86_400.0


@dataclass(frozen=True)
class Report:
    """A report as read. `unusable` is "" or why nothing can be counted; `tests` has the expected names, in
    their order; `extra` the other entries; `flags` what was odd."""

    tests: tuple[TestResult, ...]
    extra: tuple[TestResult, ...]
    unusable: str = ""
    flags: tuple[str, ...] = ()
    version: str = ""

    @property
    def passed(self) -> int:
        """Expected tests that passed."""
        return sum(test.status is TestStatus.PASSED for test in self.tests)


def parse_report(data: bytes, *, expected: Sequence[str], ignored: Sequence[str] = ()) -> Report:
    """Read `data` against the task's expected names; `ignored` names (our canaries) go to `extra`
    unflagged."""
    try:
        entries, document = _entries(data)
    except _Unusable as reason:
        missing = tuple(TestResult(name, TestStatus.OTHER, message="not reported") for name in expected)
        return Report(missing, (), unusable=str(reason))
    flags: list[str] = []
    by_name: dict[str, TestResult] = {}
    for entry in entries:
        test = _test(entry, flags)
        if test.name in by_name:
            flags.append(f"duplicate:{test.name}")
            if by_name[test.name].status is not TestStatus.PASSED:
                continue
        by_name[test.name] = test
    tests, used = [], set()
    for name in expected:
        merged = name.split("[", 1)[0]
        found = name if name in by_name else merged if merged in by_name and merged not in expected else None
        if found is None:
            flags.append(f"missing:{name}")
            tests.append(TestResult(name, TestStatus.OTHER, message="not reported"))
        else:
            used.add(found)
            was = by_name[found]
            tests.append(TestResult(name, was.status, was.duration_s, was.message))
    extra = tuple(test for name, test in by_name.items() if name not in used)
    flags += [f"unexpected:{test.name}" for test in extra if test.name not in ignored]
    summary = document["results"].get("summary")
    num_passed = sum(entry.get("status") == "passed" for entry in entries)
    if isinstance(summary, dict) and (summary.get("tests"), summary.get("passed")) != (
        len(entries),
        num_passed,
    ):
        flags.append("summary-disagrees")
    version = plain(str(document.get("specVersion", "0")))[:20]
    return Report(tuple(tests), extra, flags=tuple(dict.fromkeys(flags)), version=version)


def plain(text: str) -> str:
    """Text that any file can hold: what is no Unicode character becomes an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


class _Unusable(Exception):
    pass


def _entries(data: bytes) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    def refuse(constant: str) -> NoReturn:
        raise _Unusable(f"holds {constant}")

    if not data.strip():
        raise _Unusable("empty")
    if len(data) > MAX_REPORT_BYTES:
        raise _Unusable("larger than any honest report")
    try:
        document = json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise _Unusable("not whole JSON") from None
    results = document.get("results") if isinstance(document, dict) else None
    entries = results.get("tests") if isinstance(results, dict) else None
    if not isinstance(entries, list):
        raise _Unusable("no results.tests")
    if not entries:
        raise _Unusable("no tests: collection failed")
    for entry in entries:
        if (
            not isinstance(entry, dict)
            or not isinstance(entry.get("name"), str)
            or not isinstance(entry.get("status"), str)
        ):
            raise _Unusable("a test without name or status")
    return entries, document


def _test(entry: dict[str, Any], flags: list[str]) -> TestResult:
    name = plain(entry["name"])
    try:
        status = TestStatus(entry["status"])
    except ValueError:
        flags.append(f"status:{name}")
        status = TestStatus.OTHER
    duration = entry.get("duration", 0)
    # The old plugin writes float seconds, the new one whole milliseconds.
    seconds = -1.0
    if isinstance(duration, int) and abs(duration) <= 1000 * _MAX_DURATION_S:
        seconds = duration / 1000
    elif isinstance(duration, float):
        seconds = duration
    if not 0 <= seconds <= _MAX_DURATION_S:
        # pytest.exit inside a test leaves an entry whose set-up passed and which never stopped.
        flags.append(f"unfinished:{name}")
        status, seconds = TestStatus.OTHER, 0.0
    message = entry.get("message") or entry.get("trace") or ""
    return TestResult(name, status, seconds, plain(str(message))[:MAX_MESSAGE_CHARS])
