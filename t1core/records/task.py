"""A task: what the agent is asked to do, and the names of the tests that will judge it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TaskEnvironment:
    """What a task asks of the box it is done in; None leaves it to the campaign.

    A sandbox kind refuses what it cannot honour. `docker_image` is a prebuilt image, `has_compose` says that the
    task brings a docker-compose.yaml, `user` is who the agent works as ("" and root are the same).
    """

    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    num_gpus: int = 0
    docker_image: str = ""
    has_compose: bool = False
    user: str = ""


@dataclass(frozen=True)
class Task:
    """One task of a pool, as read from a Harbor-layout directory.

    `test_names` are the CTRF names a full report must carry (`test_outputs.py::test_x`), in file order;
    `nop_passed` are those that pass on the untouched workspace. `verifier_env` reaches the tests, `solution_env` the
    task's own solution.
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
    verifier_env: Mapping[str, str] = field(default_factory=dict)
    solution_env: Mapping[str, str] = field(default_factory=dict)
    environment: TaskEnvironment = field(default_factory=TaskEnvironment)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_tests(self) -> int:
        return len(self.test_names)
