"""A grade: what the verifier measured, and the reward the host computed from it."""

from dataclasses import dataclass
from enum import StrEnum


class TestStatus(StrEnum):
    __test__ = False  # not a test class, whatever pytest thinks of the name

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    PENDING = "pending"
    OTHER = "other"


class RewardSource(StrEnum):
    """Where a reward came from; its shares are metrics."""

    CTRF = "ctrf"  # counted from the report's tests[]
    BINARY = "binary"  # the task's own script asks for no report, and its reward file was used
    NO_REPORT = "no_report"  # the agent's code kept the report from being written: scores 0
    NONE = "none"  # no grade: an infrastructure failure, never scored


@dataclass(frozen=True)
class TestResult:
    __test__ = False

    name: str
    status: TestStatus
    duration_s: float = 0.0
    message: str = ""


@dataclass(frozen=True)
class Grade:
    """The verifier's answer for one trial. `reward` is None exactly when `source` is NONE."""

    reward: float | None
    source: RewardSource
    passed: int
    total: int
    solved: bool
    tests: tuple[TestResult, ...]
    flags: tuple[str, ...] = ()  # reasons for quarantine, empty when nothing was suspicious
    quarantined: bool = False
    duration_s: float = 0.0
    cpu_s: float = 0.0
    ctrf_version: str = ""
    stdout_tail: str = ""
    declared: float | None = None  # what Harbor would take for the reward; None without a grade
