"""The rubric of the audit by a model: eight weighted dimensions, four reasons to reject outright, critical minima.

    quality = sum over dimensions of weight (score - 1) / 4                        in 0 .. 1
    reject      a reason to reject outright, a critical dimension below its minimum, or quality < borderline_at
    accept      otherwise, quality >= accept_at
    borderline  otherwise

Weights, reasons and the three verdicts are T1's (arXiv 2609.11042, section 3.2 and figure 4). The scale of 1 to 5,
which dimensions are critical, their minimum and the two thresholds are not published and are ours.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from t1core.pools.verdict import Standing

LOWEST, HIGHEST = 1, 5

# Dimension -> (weight in percent, what full marks mean). Whole numbers: a threshold is met or not, never nearly.
DIMENSIONS: Mapping[str, tuple[int, str]] = {
    "instruction_clarity": (10, "one reading only; names, paths and formats are stated"),
    "self_contained": (10, "nothing is needed that the environment and the instruction do not give"),
    "instruction_verifier_alignment": (
        20,
        "the tests ask for what the instruction asks for, no more and no less",
    ),
    "verifier_fairness": (
        15,
        "every right way of doing it passes; nothing depends on chance, order or taste",
    ),
    "verifier_coverage": (10, "each part of the goal has a test that fails when that part is missing"),
    "solution_correctness": (
        15,
        "the reference solution does what the instruction asks and passes the tests",
    ),
    "solution_reasonableness": (10, "it does the work as an engineer would, without knowing the tests"),
    "training_value": (10, "solving it takes skills that carry over; it is neither trivial nor luck"),
}
CRITICAL: tuple[str, ...] = (
    "instruction_verifier_alignment",
    "verifier_fairness",
    "verifier_coverage",
    "solution_correctness",
)


class HardReject(StrEnum):
    """Reasons to reject a task outright."""

    HIDDEN_REQUIREMENT = "hidden_requirement"
    TEST_LEAKAGE = "test_leakage"
    SOLUTION_SHORTCUT = "solution_shortcut"
    VERIFIER_TOO_WEAK = "verifier_too_weak"


HARD_REJECTS: Mapping[HardReject, str] = {
    HardReject.HIDDEN_REQUIREMENT: "a test asks for something that the instruction neither says nor implies",
    HardReject.TEST_LEAKAGE: "the instruction or the environment gives away the tests or the expected results",
    HardReject.SOLUTION_SHORTCUT: "the reference solution, or an obvious trick, passes the tests without the work",
    HardReject.VERIFIER_TOO_WEAK: "the tests pass for work that misses the goal",
}


Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Scored(_Form):
    """One dimension: a whole number from 1 (worst) to 5 (best) and what in the task shows it."""

    score: Annotated[int, Field(strict=True, ge=LOWEST, le=HIGHEST)]
    evidence: Words


class Scores(_Form):
    """The eight dimensions."""

    instruction_clarity: Scored
    self_contained: Scored
    instruction_verifier_alignment: Scored
    verifier_fairness: Scored
    verifier_coverage: Scored
    solution_correctness: Scored
    solution_reasonableness: Scored
    training_value: Scored


class Rejection(_Form):
    """A reason to reject outright, with the passage of the task that shows it, word for word."""

    kind: HardReject
    quote: Words
    why: Words


class AuditAnswer(_Form):
    """What the model is asked for."""

    scores: Scores
    hard_rejects: tuple[Rejection, ...]

    def score_of(self, dimension: str) -> int:
        return getattr(self.scores, dimension).score


@dataclass(frozen=True)
class Rubric:
    """The thresholds. `minimum` is the score that every critical dimension needs."""

    accept_at: float = 0.75
    borderline_at: float = 0.5
    minimum: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.borderline_at <= self.accept_at <= 1:
            raise ValueError(
                f"borderline_at={self.borderline_at} and accept_at={self.accept_at} must be in 0 .. 1, in that order"
            )
        if not LOWEST <= self.minimum <= HIGHEST:
            raise ValueError(f"minimum={self.minimum} must be a score, {LOWEST} to {HIGHEST}")

    def quality(self, answer: AuditAnswer) -> float:
        """The weighted quality, 0 .. 1."""
        gained = sum(
            weight * (answer.score_of(dimension) - LOWEST) for dimension, (weight, _) in DIMENSIONS.items()
        )
        return gained / (100 * (HIGHEST - LOWEST))

    def below_minimum(self, answer: AuditAnswer) -> tuple[str, ...]:
        """Critical dimensions that miss the minimum."""
        return tuple(name for name in CRITICAL if answer.score_of(name) < self.minimum)

    def standing(self, answer: AuditAnswer) -> Standing:
        """The verdict that follows from an answer."""
        quality = self.quality(answer)
        if answer.hard_rejects or self.below_minimum(answer) or quality < self.borderline_at:
            return Standing.REJECT
        return Standing.ACCEPT if quality >= self.accept_at else Standing.BORDERLINE

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
