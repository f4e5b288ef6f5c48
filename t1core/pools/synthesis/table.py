"""The table of a synthesis, a row a round, in the shape of RST's: yield, growth, and how a fixed policy fares."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Self

import pandas as pd

from t1core.pools.llm.endpoint import Cost
from t1core.pools.synthesis.candidate import Size
from t1core.pools.synthesis.lineage import Step, of_round
from t1core.pools.synthesis.policy import Attempt

# RST (arXiv 2608.05466), rounds 1 and 15: quoted, for the shape only. Its tasks and its policy are others.
RST_QUOTED = pd.DataFrame(
    {
        "round": [1, 15],
        "solution_lines": [67, 374],
        "commands": [40, 244],
        "asserts": [17, 57],
        "pass_at_4": [0.90, 0.025],
    }
)


def synthesis_table(
    steps: Sequence[Step],
    *,
    seeds: Mapping[str, Size],
    attempts: Sequence[Attempt],
    error_rate: float,
) -> pd.DataFrame:
    """Columns round, tried, kept, yield, num_seeds, solution_lines, tests, asserts, instruction_chars (medians over
    kept tasks), num_tasks (attempted), attempts, pass_at_1, pass_at_k, tests_passed, computed. Round 0 are the seeds.

    pass_at_1: share of attempts that pass every test, mean over tasks. pass_at_k: share of tasks that one of their k
    attempts solves. tests_passed: mean share of tests. computed: mean of (1 - error_rate) ** commands, what pass_at_1
    would be if every command mattered.
    """
    rows = [_row(0, tried=len(seeds), sizes=list(seeds.values()), num_seeds=[1] * len(seeds))]
    for number in sorted({step.round for step in steps}):
        tried = list(of_round(steps, number))
        kept = [step for step in tried if step.is_kept]
        sizes = [step.size for step in kept if step.size is not None]
        rows.append(_row(number, tried=len(tried), sizes=sizes, num_seeds=[step.num_seeds for step in kept]))
    for row in rows:
        row |= _fared([one for one in attempts if one.round == row["round"]], error_rate=error_rate)
    return pd.DataFrame(rows)


_COUNTS = ("round", "tried", "kept", "num_tasks", "attempts")


@dataclass(frozen=True)
class Summary:
    """A whole synthesis as kept: the settings that its lineage began with, the policy's, the table, how often each
    reason dropped a candidate, and what the endpoint cost."""

    settings: Mapping[str, Any]
    policy: Mapping[str, Any]
    table: pd.DataFrame
    dropped: Mapping[str, int]
    cost: Cost

    def to_json(self) -> str:
        # Numbers that JSON lacks are null, and come back as NaN.
        rows = json.loads(self.table.to_json(orient="records", double_precision=6))
        whole = {
            "settings": dict(self.settings),
            "policy": dict(self.policy),
            "table": rows,
            "dropped": dict(self.dropped),
            "cost": asdict(self.cost),
        }
        return json.dumps(whole, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        stored = json.loads(text)
        table = pd.DataFrame(stored["table"]).astype(float).astype(dict.fromkeys(_COUNTS, int))
        return cls(**stored | {"table": table, "cost": Cost(**stored["cost"])})


def _row(number: int, *, tried: int, sizes: Sequence[Size], num_seeds: Sequence[int]) -> dict[str, float]:
    def middle(values: Sequence[int]) -> float:
        return float(median(values)) if values else float("nan")

    return {
        "round": number,
        "tried": tried,
        "kept": len(sizes),
        "yield": len(sizes) / tried if tried else float("nan"),
        "num_seeds": middle(num_seeds),
        "solution_lines": middle([size.solution_lines for size in sizes]),
        "tests": middle([size.num_tests for size in sizes]),
        "asserts": middle([size.num_asserts for size in sizes]),
        "instruction_chars": middle([size.instruction_chars for size in sizes]),
    }


def _fared(attempts: Sequence[Attempt], *, error_rate: float) -> dict[str, float]:
    by_task: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        by_task.setdefault(attempt.task_id, []).append(attempt)
    groups = list(by_task.values())

    def mean(values: list[float]) -> float:
        return sum(values) / len(values) if values else float("nan")

    return {
        "num_tasks": len(groups),
        "attempts": len(attempts),
        "pass_at_1": mean([mean([float(one.is_solved) for one in group]) for group in groups]),
        "pass_at_k": mean([float(any(one.is_solved for one in group)) for group in groups]),
        "tests_passed": mean([mean([one.num_passed / one.num_tests for one in group]) for group in groups]),
        "computed": mean([(1 - error_rate) ** group[0].num_commands for group in groups]),
    }


def reject_reasons(steps: Sequence[Step]) -> Counter[str]:
    """How often each reason kept a candidate from being kept: the failed checks of its audit, which may be several,
    else what stands before the first colon."""
    dropped = [step for step in steps if not step.is_kept]
    return Counter(
        reason for step in dropped for reason in step.failed_checks or (step.reason.partition(": ")[0],)
    )


def step_line(step: Step) -> str:
    """One candidate, told."""
    size = "" if step.size is None else f"{step.size.solution_lines} lines, {step.size.num_tests} tests"
    why = "" if step.is_kept else f"  {step.reason[:200]}"
    return f"{'kept' if step.is_kept else 'dropped':<8} {step.task_id:<22} {size}{why}"


def summary_lines(summary: Summary) -> Iterator[str]:
    """The table and what was dropped, as text."""
    table = summary.table
    yield from table.to_string(
        index=False, float_format=lambda value: f"{value:.2f}", na_rep="-"
    ).splitlines()
    reasons = ", ".join(f"{number} {reason}" for reason, number in summary.dropped.items())
    yield f"dropped    {reasons or 'none'}"
    cost = summary.cost
    if cost.num_calls:
        failures = ", ".join(f"{number} {kind}" for kind, number in cost.failures.items()) or "none"
        yield (
            f"cost       {cost.num_calls} calls, {cost.prompt_tokens} prompt and {cost.completion_tokens} completion "
            f"tokens, {cost.seconds:.1f} s waited for answers; failures: {failures}"
        )
