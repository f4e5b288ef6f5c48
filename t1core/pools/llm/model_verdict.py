"""One task's verdict by a model: scores with evidence, repairs and who made them, cost, and what failed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from t1core.pools.llm.endpoint import Cost
from t1core.pools.llm.rubric import AuditAnswer, Rubric
from t1core.pools.verdict import Standing

FAILED = "failed"  # where a verdict should stand, of a task that no answer came about
_ORDER = tuple(Standing)  # best first


@dataclass(frozen=True)
class Judgement:
    """What one answer of the audit says of a task under a rubric. `prompt_hash` names the question it answers."""

    standing: Standing
    quality: float
    scores: Mapping[str, int]
    evidence: Mapping[str, str]
    hard_rejects: tuple[Mapping[str, str], ...]
    below_minimum: tuple[str, ...]
    prompt_hash: str

    @classmethod
    def of(cls, answer: AuditAnswer, *, rubric: Rubric, prompt_hash: str) -> Self:
        dimensions = answer.scores.model_dump()
        return cls(
            standing=rubric.standing(answer),
            quality=rubric.quality(answer),
            scores={name: one["score"] for name, one in dimensions.items()},
            evidence={name: one["evidence"] for name, one in dimensions.items()},
            hard_rejects=tuple(one.model_dump(mode="json") for one in answer.hard_rejects),
            below_minimum=rubric.below_minimum(answer),
            prompt_hash=prompt_hash,
        )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        return cls(
            **{
                **stored,
                "standing": Standing(stored["standing"]),
                "hard_rejects": tuple(stored["hard_rejects"]),
                "below_minimum": tuple(stored["below_minimum"]),
            }
        )

    def findings(self) -> list[str]:
        """What is wrong, for who repairs it: reasons to reject, then dimensions short of full marks."""
        rejects = [f"{one['kind']}: {one['why']} ({one['quote']!r})" for one in self.hard_rejects]
        short = [
            f"{name} {score} of 5: {self.evidence[name]}" for name, score in self.scores.items() if score < 5
        ]
        return rejects + short


@dataclass(frozen=True)
class Repair:
    """An instruction that a model wrote in place of another; SHA-256 of both, as an agent is shown them, and of the
    question it answered."""

    instruction: str
    changes: str
    before_sha256: str
    after_sha256: str
    prompt_hash: str
    model: str
    made_at: str  # UTC, ISO


@dataclass(frozen=True)
class ModelVerdict:
    """A line of the audit's file. The first of `judgements` is of the task as it is, each later one of the repair
    before it. A repair that does not raise the standing is dropped. `error` says which step failed; what was found
    before counts, and the standing is "failed" where nothing was. `cost` is of every audit of the task in the file."""

    task_id: str
    content_hash: str
    judgements: tuple[Judgement, ...]
    repairs: tuple[Repair, ...]
    cost: Cost
    endpoint: str  # base address that was asked
    judged_at: str  # UTC, ISO
    error: str = ""
    error_kind: str = ""

    @property
    def num_kept_repairs(self) -> int:
        """How many repairs stand in the task that the verdict is of: those up to the last that raised it."""
        kept = 0
        for number, judgement in enumerate(self.judgements):
            if _ORDER.index(judgement.standing) < _ORDER.index(self.judgements[kept].standing):
                kept = number
        return kept

    @property
    def judgement(self) -> Judgement | None:
        """The one that counts."""
        return self.judgements[self.num_kept_repairs] if self.judgements else None

    @property
    def standing(self) -> str:
        """accept, borderline or reject; "failed" where no answer could be used."""
        return FAILED if self.judgement is None else str(self.judgement.standing)

    @property
    def repair(self) -> Repair | None:
        """The repair that the verdict is of; None where it is of the task as it is."""
        return self.repairs[self.num_kept_repairs - 1] if self.num_kept_repairs else None

    def to_dict(self) -> dict[str, Any]:
        return {"task_id": self.task_id, "standing": self.standing, **asdict(self)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        fields = {name: value for name, value in stored.items() if name != "standing"}
        return cls(
            **{
                **fields,
                "judgements": tuple(Judgement.from_dict(one) for one in stored["judgements"]),
                "repairs": tuple(Repair(**one) for one in stored["repairs"]),
                "cost": Cost(**stored["cost"]),
            }
        )
