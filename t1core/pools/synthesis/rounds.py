"""Recursive synthesis: `t1 pool synthesise`.

    parents of round 1: the pool's training tasks; of round r: what round r - 1 kept
    each round: so many candidates -> no twin of a task there is -> the executable audit, in boxes -> kept or not
    every candidate is a line of lineage.jsonl; a run that was killed goes on after the last

What is kept lies in the output as Harbor task directories, round-01/r01-0003-chain and so on, with the pool's index.
"""

import hashlib
import json
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Protocol

from t1core.pools.synthesis.candidate import Candidate, Parent, size_of
from t1core.pools.synthesis.lineage import LINEAGE_NAME, Step, append_step, begin_lineage, of_round
from t1core.pools.synthesis.recipe import from_dict, seeds_of
from t1core.pools.verdict import Standing, Verdict
from t1core.tasks.index import content_hash, write_index

Gate = Callable[[Path], Awaitable[Verdict]]


class Proposer(Protocol):
    """What makes candidates from parents. Raises ValueError for parents it can make nothing of."""

    async def propose(self, parents: Sequence[Parent], *, round_number: int, index: int) -> Candidate: ...


@dataclass(frozen=True)
class RoundPlan:
    """`num_rounds` rounds of `per_round` candidates each."""

    num_rounds: int
    per_round: int

    def __post_init__(self) -> None:
        for name in ("num_rounds", "per_round"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")


async def synthesise(
    seeds: Sequence[Parent],
    *,
    proposer: Proposer,
    gate: Gate,
    plan: RoundPlan,
    head: Mapping[str, Any],
    output: Path,
    say: Callable[[Step], None],
) -> list[Step]:
    """Run the rounds, or go on with them; every step there is. Ends early where a round keeps nothing.

    `head` is what another run must share to go on. Raises ValueError where it does not, or there are no seeds.
    """
    if not seeds:
        raise ValueError("there is no task to begin with; give a pool that has training tasks")
    output.mkdir(parents=True, exist_ok=True)
    path = output / LINEAGE_NAME
    steps = begin_lineage(path, head=dict(head))
    known = {substance_of(_files_of(seed.directory)) for seed in seeds}
    known |= {step.substance_hash for step in steps if step.substance_hash}
    for number in range(1, plan.num_rounds + 1):
        parents = list(seeds) if number == 1 else _kept(steps, number - 1, output=output)
        if not parents:
            break
        done = {step.index for step in of_round(steps, number)}
        for index in range(plan.per_round):
            if index in done:
                continue
            candidate = await proposer.propose(parents, round_number=number, index=index)
            step = await _try(candidate, number=number, index=index, known=known, gate=gate, output=output)
            append_step(path, step)
            steps.append(step)
            known |= {step.substance_hash} if step.substance_hash else set()
            say(step)
    if any(step.is_kept for step in steps):
        write_index(output)
    return steps


async def _try(
    candidate: Candidate, *, number: int, index: int, known: set[str], gate: Gate, output: Path
) -> Step:
    """Gate one candidate; its directory stays only if it is kept."""
    task_id = f"r{number:02d}-{index:04d}-{candidate.operator}"
    step = {
        "task_id": task_id,
        "round": number,
        "index": index,
        "operator": candidate.operator,
        "parents": candidate.parents,
        "origin": candidate.origin,
        "is_kept": False,
        "reason": candidate.problem,
        "failed_checks": (),
        "num_seeds": 1 if candidate.recipe is None else len(list(seeds_of(candidate.recipe))),
        "size": None,
        "content_hash": None,
        "substance_hash": None,
        "cost": candidate.cost,
        "audit_s": 0.0,
    }
    if candidate.files is None:
        return Step(**step)
    texts = candidate.files.texts
    step |= {"size": size_of(texts), "substance_hash": substance_of(texts)}
    if step["substance_hash"] in known:
        return Step(**step | {"reason": "twin: files, tests and solution are those of another task"})
    directory = output / f"round-{number:02d}" / task_id
    shutil.rmtree(directory, ignore_errors=True)  # of a run that was killed
    candidate.files.write(directory)
    verdict = await gate(directory)
    is_kept = verdict.standing is Standing.ACCEPT
    step |= {"content_hash": content_hash(directory), "audit_s": verdict.numbers.get("audit_s", 0.0)}
    if not is_kept:
        shutil.rmtree(directory)
        step["reason"] = "; ".join(f"{check.name}: {check.evidence}" for check in verdict.failed)
        step["failed_checks"] = tuple(check.name for check in verdict.failed)
    return Step(**step | {"is_kept": is_kept})


def _kept(steps: Sequence[Step], number: int, *, output: Path) -> list[Parent]:
    return [
        Parent(
            step.task_id,
            output / f"round-{number:02d}" / step.task_id,
            from_dict(step.origin["recipe"]) if "recipe" in step.origin else None,
        )
        for step in of_round(steps, number)
        if step.is_kept
    ]


def substance_of(texts: Mapping[str, str]) -> str:
    """Hex SHA-256 of workspace, solution and tests: two wordings of one task are the same."""
    counted = {
        name: text
        for name, text in texts.items()
        if name.startswith(("environment/files/", "solution/")) or name == "tests/test_outputs.py"
    }
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()


def _files_of(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): path.read_text(errors="replace")
        for path in directory.rglob("*")
        if path.is_file()
    }


def head_of(**settings: Any) -> dict[str, Any]:
    """Settings as the first line of the lineage holds them: dataclasses as their fields."""
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in settings.items()
    }
