"""The audit of a pool by a model: `t1 pool llm-audit`.

    each task      ask for scores -> if the instruction can mend it, ask for another instruction -> ask for scores
    each verdict   a line of the output, written when it is known; a run that was killed goes on after the last

Only instructions are repaired: tests, solution and environment stay, and so does the pool. Accepted repairs go into a
directory of their own (`write_repaired`).
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from t1core.pools.llm.answer import ask_for
from t1core.pools.llm.endpoint import ChatEndpoint, Cost, EndpointFailed
from t1core.pools.llm.model_verdict import Judgement, ModelVerdict, Repair
from t1core.pools.llm.prompt import PROMPT_VERSION, audit_messages, prompt_hash, repair_messages, task_text
from t1core.pools.llm.rubric import AuditAnswer, HardReject, Rubric, Words
from t1core.pools.verdict import Standing
from t1core.store.atomic import append_line, drop_torn_line
from t1core.tasks.harbor import without_canary

FILE_KIND, FILE_VERSION = "t1core llm audit", 1
# What no instruction can mend. A hidden requirement is mended by saying it.
_NOT_BY_WORDS = {HardReject.TEST_LEAKAGE, HardReject.SOLUTION_SHORTCUT, HardReject.VERIFIER_TOO_WEAK}
_LONGEST_SHARED_LINE = 40  # characters of a test's line that a repaired instruction may hold


@dataclass(frozen=True)
class AuditPlan:
    """How tasks are judged. `max_retries` bounds how often a wrong answer is asked for again, `max_repairs` the repairs
    of a task, `max_chars` what is shown of one, `num_parallel` the tasks judged at once."""

    rubric: Rubric = field(default_factory=Rubric)
    max_retries: int = 2
    max_repairs: int = 1
    max_chars: int = 60_000
    num_parallel: int = 4

    def __post_init__(self) -> None:
        for name, lowest in (("max_retries", 0), ("max_repairs", 0), ("max_chars", 1), ("num_parallel", 1)):
            if getattr(self, name) < lowest:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {lowest}")


class _RepairAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    instruction: str
    changes: Words


@dataclass(frozen=True)
class TaskPlace:
    """A task to judge: its name, its directory, and the hash of its files."""

    task_id: str
    directory: Path
    content_hash: str


async def audit_task(endpoint: ChatEndpoint, place: TaskPlace, *, plan: AuditPlan) -> ModelVerdict:
    """Judge one task, repair its instruction where that may help, and judge again. What fails is in the verdict."""
    judgements: list[Judgement] = []
    repairs: list[Repair] = []
    cost, error, kind = Cost(), "", ""
    instruction = without_canary((place.directory / "instruction.md").read_text())
    try:
        while True:
            shown = task_text(place.directory, instruction=instruction, max_chars=plan.max_chars)
            judgement, spent = await _judge(endpoint, shown, plan=plan)
            judgements.append(judgement)
            cost += spent
            if len(repairs) == plan.max_repairs or not _is_mendable(judgement):
                break
            repair, spent = await _repair(
                endpoint, shown, judgement, old=instruction, tests=_test_lines(place.directory), plan=plan
            )
            repairs.append(repair)
            cost += spent
            instruction = repair.instruction
    except EndpointFailed as failed:
        step = ("repair" if len(judgements) > len(repairs) else "audit") + (
            " after a repair" if repairs else ""
        )
        error, kind = f"{step}: {failed}", str(failed.kind)
        cost += failed.cost
    return ModelVerdict(
        task_id=place.task_id,
        content_hash=place.content_hash,
        judgements=tuple(judgements),
        repairs=tuple(repairs),
        cost=cost,
        endpoint=endpoint.settings.url,
        judged_at=_now(),
        error=error,
        error_kind=kind,
    )


async def audit_tasks(
    endpoint: ChatEndpoint,
    places: Iterable[TaskPlace],
    *,
    plan: AuditPlan,
    output: Path,
    say: Callable[[ModelVerdict], None],
) -> None:
    """Judge the tasks that `output` has no verdict of yet, several at once, and append each verdict as a line.

    A task at which something failed, or whose files have changed since, is judged again; the later line counts. Raises
    ValueError when `output` was made by another model or rubric. The same model may answer at another address.
    """
    done = begin(output, head=_head(endpoint, plan))
    waiting = iter(
        place for place in places
        if (known := done.get(place.task_id)) is None or known.error or known.content_hash != place.content_hash
    )  # fmt: skip

    async def work() -> None:
        for place in waiting:
            verdict = await audit_task(endpoint, place, plan=plan)
            if place.task_id in done:  # what the attempts before cost was spent, too
                verdict = replace(verdict, cost=done[place.task_id].cost + verdict.cost)
            append_line(output, json.dumps(verdict.to_dict()))
            say(verdict)

    workers = [asyncio.ensure_future(work()) for _ in range(plan.num_parallel)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def begin(output: Path, *, head: Mapping[str, Any]) -> dict[str, ModelVerdict]:
    """The verdicts that a file has already, by task; a new file gets its first line. ValueError for another's."""
    drop_torn_line(output)
    if not output.exists() or not output.stat().st_size:
        output.parent.mkdir(parents=True, exist_ok=True)
        append_line(output, json.dumps(head))
        return {}
    found, verdicts = read_audit(output)
    if changed := [name for name in head if found.get(name) != head[name]]:
        name = changed[0]
        raise ValueError(
            f"output {output} was made with {name} {found.get(name)!r} and now it is {head[name]!r}; give another "
            "file, or go on as it was begun"
        )
    return {verdict.task_id: verdict for verdict in verdicts}


def read_audit(path: Path | str) -> tuple[dict[str, Any], list[ModelVerdict]]:
    """(first line, the verdict that counts of each task in the order first judged). ValueError for another file."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"audit {path}: no such file; `t1 pool llm-audit` writes one")
    head, *lines = path.read_text().splitlines() or [""]
    try:
        found = json.loads(head)
        if found["kind"] != FILE_KIND or found["schema_version"] > FILE_VERSION:
            raise ValueError(f"it is a {found['kind']!r} of version {found['schema_version']}")
        verdicts = [ModelVerdict.from_dict(json.loads(line)) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"audit {path} cannot be read ({type(error).__name__}: {error}); give a file of `t1 pool llm-audit`, of "
            f"version {FILE_VERSION} at most"
        ) from error
    return found, list({verdict.task_id: verdict for verdict in verdicts}.values())


async def _judge(endpoint: ChatEndpoint, shown: str, *, plan: AuditPlan) -> tuple[Judgement, Cost]:
    messages = audit_messages(shown)
    answered = await ask_for(
        endpoint,
        messages,
        form=AuditAnswer,
        complaint_of=lambda answer: _unquoted(answer, shown),
        max_retries=plan.max_retries,
    )
    judged = Judgement.of(answered.value, rubric=plan.rubric, prompt_hash=prompt_hash(messages))
    return judged, answered.cost


async def _repair(
    endpoint: ChatEndpoint,
    shown: str,
    judgement: Judgement,
    *,
    old: str,
    tests: list[str],
    plan: AuditPlan,
) -> tuple[Repair, Cost]:
    messages = repair_messages(shown, findings=judgement.findings())
    answered = await ask_for(
        endpoint,
        messages,
        form=_RepairAnswer,
        complaint_of=lambda answer: _unusable(answer.instruction, old=old, tests=tests),
        max_retries=plan.max_retries,
    )
    new = answered.value.instruction.strip() + "\n"
    repair = Repair(
        instruction=new,
        changes=answered.value.changes,
        before_sha256=_sha256(old),
        after_sha256=_sha256(new),
        prompt_hash=prompt_hash(messages),
        model=endpoint.settings.model,
        made_at=_now(),
    )
    return repair, answered.cost


def _test_lines(directory: Path) -> list[str]:
    files = sorted((directory / "tests").rglob("*.py"))
    return [line.strip() for file in files for line in file.read_text(errors="replace").splitlines()]


def _is_mendable(judgement: Judgement) -> bool:
    """Whether another instruction may raise the standing."""
    rejects = {HardReject(one["kind"]) for one in judgement.hard_rejects}
    return judgement.standing is not Standing.ACCEPT and not rejects & _NOT_BY_WORDS


def _unquoted(answer: AuditAnswer, shown: str) -> str | None:
    """A reason to reject must quote the task: what is not there is no evidence."""
    text = " ".join(shown.split())
    for rejection in answer.hard_rejects:
        if " ".join(rejection.quote.split()) not in text:
            return (
                f"the quote {rejection.quote[:120]!r} of {rejection.kind} does not stand in the task's files"
            )
    return None


def _unusable(new: str, *, old: str, tests: Iterable[str]) -> str | None:
    """What keeps a repaired instruction from being used."""
    if not new.strip():
        return "the instruction is empty"
    if new.strip() == old.strip():
        return "the instruction is the old one"
    copied = [line for line in tests if len(line) > _LONGEST_SHARED_LINE and line in new and line not in old]
    return f"the instruction copies code of the tests: {copied[0][:120]!r}" if copied else None


def _head(endpoint: ChatEndpoint, plan: AuditPlan) -> dict[str, Any]:
    """The first line of the file: all that another run must share to go on."""
    return {
        "kind": FILE_KIND,
        "schema_version": FILE_VERSION,
        "prompt_version": PROMPT_VERSION,
        "model": endpoint.settings.model,
        "rubric": plan.rubric.to_dict(),
        "max_repairs": plan.max_repairs,
        "max_chars": plan.max_chars,
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
