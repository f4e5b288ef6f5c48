"""What a model is shown of a task and asked about it, and the hash by which an answer names its question."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from t1core.pools.llm.endpoint import Message
from t1core.pools.llm.rubric import DIMENSIONS, HARD_REJECTS

PROMPT_VERSION = 1
# In this order, so that what a cut leaves out matters least.
_PARTS = ("instruction.md", "tests", "solution", "environment", "task.toml")

_AUDIT = """You judge tasks that an agent is trained on. The agent sees the instruction and works in a terminal, in the
environment below. It sees neither tests nor solution. Its reward is the number of tests that pass afterwards.

Score eight dimensions from 1 (worst) to 5 (best), with the evidence in a sentence each:
{dimensions}

Name the reasons to reject the task outright that hold, if any, each with a `quote`: a passage of the task's files, word
for word, that shows it. Leave the list empty where none holds:
{rejects}

Answer with one JSON object and nothing else:
{{"scores": {{"{first}": {{"score": 1, "evidence": "..."}}, ... all eight ...}},
 "hard_rejects": [{{"kind": "...", "quote": "...", "why": "..."}}]}}
"""

_REPAIR = """You repair the instruction of a task that an agent is trained on. Tests, solution and environment stay as
they are: only the instruction may change. State what the tests require and the instruction leaves out or says
otherwise: names, paths, formats, values, limits. Keep its goal, its tone and its length where you can. Do not copy code
of the tests, do not say how to do the work, and do not mention that there are tests.

An audit found:
{findings}

Answer with one JSON object and nothing else:
{{"instruction": "the whole new instruction", "changes": "what changed, in a sentence"}}
"""


def task_text(directory: Path, *, instruction: str, max_chars: int) -> str:
    """A task's files as one text, each under its path; `instruction` in place of the one on disk.

    At most about `max_chars`: files that do not fit are cut, and the text says so. Binary files show their size, links
    where they lead.
    """
    shown, left = [], max_chars
    for name in _files(directory):
        text = instruction if name == "instruction.md" else _read(directory / name)
        kept = (
            text
            if len(text) <= left
            else text[:left] + f"\n[{len(text) - left} more characters are not shown]"
        )
        left = max(0, left - len(text))
        shown.append(f"=== {name}\n{kept.rstrip()}\n")
    return "\n".join(shown)


def audit_messages(shown: str) -> list[Message]:
    """The question of the audit about a task's text."""
    dimensions = "\n".join(f"- {name}: {meaning}" for name, (_, meaning) in DIMENSIONS.items())
    rejects = "\n".join(f"- {kind}: {meaning}" for kind, meaning in HARD_REJECTS.items())
    rules = _AUDIT.format(dimensions=dimensions, rejects=rejects, first=next(iter(DIMENSIONS)))
    return [{"role": "system", "content": rules}, {"role": "user", "content": shown}]


def repair_messages(shown: str, *, findings: Sequence[str]) -> list[Message]:
    """The question of a repair: the same text, and what an audit found."""
    rules = _REPAIR.format(findings="\n".join(f"- {finding}" for finding in findings))
    return [{"role": "system", "content": rules}, {"role": "user", "content": shown}]


def prompt_hash(messages: Sequence[Message]) -> str:
    """Hex SHA-256 of the messages as JSON."""
    return hashlib.sha256(json.dumps(list(messages), sort_keys=True).encode()).hexdigest()


def _files(directory: Path) -> list[str]:
    names = [
        path.relative_to(directory).as_posix()
        for path in sorted(directory.rglob("*"))
        if (path.is_file() or path.is_symlink()) and "__pycache__" not in path.parts
    ]
    ranked = [name for part in _PARTS for name in names if name == part or name.startswith(f"{part}/")]
    return ranked + [name for name in names if name not in ranked]


def _read(path: Path) -> str:
    if path.is_symlink():  # it may lead out of the task, and what is shown leaves this machine
        return f"[a link to {path.readlink()}]"
    data = path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"[binary, {len(data)} bytes]"
