"""A score: what an evaluation found, and all that another score must share with it to be compared."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Score:
    """`resolved`: mean over tasks of the share of attempts that pass every test (pass@1). `dense`: mean reward of the
    grade. `resolved_se`, `dense_se`: their standard errors over tasks. NaN where nothing ran. `headline`: which of the
    two the protocol reports.

    `harness`, `limits` and `pool` say how it was measured, `weights` what: the one version, and its checksum.
    """

    protocol: str
    headline: str
    split: str
    step: int
    num_tasks: int
    attempts: int
    num_asked: int
    num_ran: int
    resolved: float
    dense: float
    resolved_se: float
    dense_se: float
    harness: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    pool: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Any] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()  # attempts that did not run, each with its reason

    @property
    def is_complete(self) -> bool:
        """Whether every attempt that was asked for ran to a grade."""
        return self.num_ran == self.num_asked

    @property
    def value(self) -> float:
        """The headline number."""
        return self.resolved if self.headline == "resolved" else self.dense

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        return cls(**{**stored, "unfinished": tuple(stored["unfinished"])})
