"""A task: what the agent is asked to do, and the names of the tests that will judge it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Task:
    """One task of a pool, as read from a Harbor-layout directory.

    `test_names` are the CTRF names a full report must carry (`test_outputs.py::test_x`), in file order;
    `nop_passed` are those that pass on the untouched workspace.
    """

    task_id: str
    family: str
    split: str
    path: Path
    instruction: str
    test_names: tuple[str, ...]
    nop_passed: tuple[str, ...] = ()
    agent_timeout_s: float | None = None
    verifier_timeout_s: float = 60.0
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_tests(self) -> int:
        return len(self.test_names)
