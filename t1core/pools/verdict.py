"""What an audit finds of a task: checks with their evidence, and the verdict that follows from them.

A file of verdicts has one JSON line a task behind no header, so that it can be appended to, cut by a kill and gone on
with. A verdict belongs to the content of a task, not to its name.

| verdict    | when                                                             |
|------------|------------------------------------------------------------------|
| reject     | a check of HARD failed                                           |
| borderline | any other check failed, or there is no solution to show anything by |
| accept     | otherwise; notes and other skips change nothing                  |
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Outcome(StrEnum):
    """What became of a check; a note is evidence that a reader should see and that fails nothing."""

    PASSED = "passed"
    FAILED = "failed"
    NOTED = "noted"
    SKIPPED = "skipped"


class Standing(StrEnum):
    ACCEPT = "accept"
    BORDERLINE = "borderline"
    REJECT = "reject"


# Checks of the executable audit, in the order in which they are made. A task that fails a hard one teaches wrongly.
CHECKS: Mapping[str, str] = {
    "opens": "the task is read, and its box opens and is graded",
    "solution": "the reference solution passes all tests",
    "untouched": "the untouched workspace passes no test",
    "trivial": "empty files, and files with a trivial content, do not solve it",
    "repeats": "the solution's grade is the same when it is given again",
    "order": "the solution's grade is the same with the tests in reverse order",
    "network": "nothing is fetched: the solution passes in a box without a network",
    "budget": "solution and tests keep within the declared time and memory",
    "attacks": "no attack of the battery passes more tests than an untouched workspace does",
    "mutants": "broken solutions fail",
    "leakage": "neither tests nor solution lie in the workspace",
}
HARD = frozenset({"opens", "solution", "trivial", "repeats", "budget", "leakage"})


@dataclass(frozen=True)
class Check:
    """One check: its name in CHECKS, what became of it, and the evidence in words."""

    name: str
    outcome: Outcome
    evidence: str = ""


@dataclass(frozen=True)
class Verdict:
    """An audit's line about a task. `numbers` are what a table sorts by: num_tests, nop_passed, mutants, survivors,
    attacks_tried, attacks_paid, solution_s, grade_s, peak_mb, where measured; `nop_passed` are the tests that the
    untouched workspace passes. `settings` are those of the audit that
    decide what was looked at."""

    task_id: str
    content_hash: str
    family: str
    standing: Standing
    checks: tuple[Check, ...]
    nop_passed: tuple[str, ...] | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome is Outcome.FAILED)

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> "Verdict":
        """Read a line that `to_line` wrote. ValueError, KeyError or TypeError for another."""
        row = json.loads(line)
        checks = tuple(Check(**check | {"outcome": Outcome(check["outcome"])}) for check in row["checks"])
        nop_passed = None if row["nop_passed"] is None else tuple(row["nop_passed"])
        standing = Standing(row["standing"])
        return cls(**row | {"checks": checks, "standing": standing, "nop_passed": nop_passed})


def standing_of(checks: Sequence[Check]) -> Standing:
    """The verdict that follows from the checks."""
    failed = {check.name for check in checks if check.outcome is Outcome.FAILED}
    if failed & HARD:
        return Standing.REJECT
    is_unproven = any(check.name == "solution" and check.outcome is Outcome.SKIPPED for check in checks)
    return Standing.BORDERLINE if failed or is_unproven else Standing.ACCEPT


def one_line(text: str, most: int = 300) -> str:
    """Evidence on a line of at most `most` letters."""
    return " ".join(text.split())[:most]


def read_verdicts(path: Path) -> Iterator[Verdict]:
    """The verdicts of a file, in its order. ValueError naming the line of what is none."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            yield Verdict.from_line(line)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} line {number} is no verdict ({type(error).__name__}: {error}); remove the line"
            ) from error


def latest_verdicts(path: Path) -> dict[str, Verdict]:
    """The last verdict on each task, by its id."""
    return {verdict.task_id: verdict for verdict in read_verdicts(path)}
