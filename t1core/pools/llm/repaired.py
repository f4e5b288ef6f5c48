"""Repaired tasks as a pool of their own: each says in its task.toml who replaced which instruction."""

import json
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from t1core.pools.llm.model_verdict import ModelVerdict, Repair
from t1core.pools.verdict import Standing
from t1core.tasks.harbor import without_canary


def write_repaired(
    verdicts: Iterable[ModelVerdict], *, directories: Mapping[str, Path], output: Path
) -> list[str]:
    """Copy each task that a kept repair made acceptable into `output`, with the new instruction; their names.

    The lines at an instruction's head that mark a benchmark's files stay. Raises ValueError where `output` exists, and
    before anything is written for a task.toml that cannot be added to.
    """
    if output.exists():
        raise ValueError(
            f"output {output} exists: repaired tasks never go over others; choose another or remove it"
        )
    chosen = {
        verdict.task_id: verdict.repair
        for verdict in verdicts
        if verdict.repair is not None
        and verdict.standing == Standing.ACCEPT
        and verdict.task_id in directories
    }
    settings = {name: _settings(directories[name], repair) for name, repair in chosen.items()}
    output.mkdir(parents=True)
    for name, repair in chosen.items():
        target = output / name
        shutil.copytree(directories[name], target, symlinks=True)
        old = (directories[name] / "instruction.md").read_text()
        head = old[: len(old) - len(without_canary(old))]
        for file, text in (("instruction.md", head + repair.instruction), ("task.toml", settings[name])):
            (target / file).unlink()  # a link would lead what is written into the pool
            (target / file).write_text(text)
    return list(chosen)


def _settings(directory: Path, repair: Repair) -> str:
    """The task's settings with where its instruction is from. ValueError where they have no room for it."""
    text = (directory / "task.toml").read_text() + _provenance(repair)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(
            f"task {directory}: its task.toml cannot take a table [metadata.instruction_repair] ({error}): write its "
            "metadata as a table of its own, and take an earlier repair's out of it"
        ) from error
    return text


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
