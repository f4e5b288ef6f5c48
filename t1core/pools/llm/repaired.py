"""Repaired tasks as a pool of their own: each says in its task.toml who replaced which instruction."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from t1core.pools.llm.model_verdict import ModelVerdict, Repair
from t1core.pools.verdict import Standing
from t1core.tasks.harbor import without_canary


def write_repaired(
    verdicts: Iterable[ModelVerdict], *, directories: Mapping[str, Path], output: Path
) -> list[str]:
    """Copy each task that a kept repair made acceptable into `output`, with the new instruction; their names.

    The lines at an instruction's head that mark a benchmark's files stay. Raises ValueError where `output` exists.
    """
    if output.exists():
        raise ValueError(
            f"output {output} exists: repaired tasks never go over others; choose another or remove it"
        )
    output.mkdir(parents=True)
    written = []
    for verdict in verdicts:
        repair = verdict.repair
        if repair is None or verdict.standing != Standing.ACCEPT or verdict.task_id not in directories:
            continue
        target = output / verdict.task_id
        shutil.copytree(directories[verdict.task_id], target)
        old = (target / "instruction.md").read_text()
        head = old[: len(old) - len(without_canary(old))]
        (target / "instruction.md").write_text(head + repair.instruction)
        with (target / "task.toml").open("a") as file:
            file.write(_provenance(repair))
        written.append(verdict.task_id)
    return written


def _provenance(repair: Repair) -> str:
    said = {
        "model": repair.model,
        "made_at": repair.made_at,
        "changes": repair.changes,
        "before_sha256": repair.before_sha256,
        "after_sha256": repair.after_sha256,
        "prompt_hash": repair.prompt_hash,
    }
    # A JSON string of printable characters is a TOML string.
    lines = [f"{name} = {json.dumps(_printable(value), ensure_ascii=False)}" for name, value in said.items()]
    return "\n[metadata.instruction_repair]\n" + "\n".join(lines) + "\n"


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())
