"""A task: what the agent is asked to do, and the names of the tests that will judge it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class HealthCheck:
    """A command that must succeed in the box before an agent starts: Docker's HEALTHCHECK, times in seconds.

    A failure within `start_period_s` of the first look is not counted; after that `retries` failures in a row end the
    wait.
    """

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    start_interval_s: float = 5.0
    retries: int = 3


@dataclass(frozen=True)
class McpServer:
    """A server that speaks the Model Context Protocol. `address` is a command line of the box (`stdio`), or a URL that
    the box itself answers."""

    name: str
    transport: str
    address: str


@dataclass(frozen=True)
class TaskEnvironment:
    """What a task asks of the box it is done in; None leaves it to the campaign.

    A sandbox kind refuses what it cannot honour. `docker_image` is a prebuilt image, `has_compose` says that the
    task brings a docker-compose.yaml, `user` is who the agent works as ("" and root are the same). `skills_dir` is a
    directory of the box whose skills the agent is told of.
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
    healthcheck: HealthCheck | None = None
    skills_dir: str = ""
    mcp_servers: tuple[McpServer, ...] = ()


@dataclass(frozen=True)
class Collect:
    """A command of the task's author, run in the agent's box after the agent and before the grade."""

    command: str
    timeout_s: float = 60.0


@dataclass(frozen=True)
class Artifact:
    """A path of the agent's box that separate tests are given; names that match `exclude` (tar's patterns) stay
    behind."""

    source: str
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeparateTests:
    """Tests that see `artifacts` of the agent's, over a fresh box of their own, and nothing else of the agent's.

    `directory` holds the Dockerfile of that box, as a task's environment does.
    """

    environment: TaskEnvironment
    directory: Path
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True)
class Task:
    """One task of a pool, as read from a Harbor-layout directory, or one step of a task in several steps.

    `test_names` are the CTRF names a full report must carry (`test_outputs.py::test_x`), in file order;
    `nop_passed` are those that pass on the untouched workspace. `verifier_env` reaches the tests, `solution_env` the
    task's own solution.

    A task in several steps has them in `steps`: each is a task on its own over the box that those before it left, with
    an instruction and tests of its own; `test_names` of the whole are the steps', `name/test_outputs.py::test_x`.
    `test_dirs` are laid over one another; () is the task's tests/. A step starts with what `workdir_files` holds in the
    working directory, its `healthcheck` (a whole task's is its environment's) passed, and only where the step before
    it reached that one's `min_reward`.
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
    collect: tuple[Collect, ...] = ()
    separate_tests: SeparateTests | None = None

    steps: tuple["Task", ...] = ()
    takes_final_reward: bool = False  # of several steps: the last one's reward, instead of the mean
    step_name: str = ""
    test_dirs: tuple[Path, ...] = ()
    workdir_files: Path | None = None
    healthcheck: HealthCheck | None = None
    min_reward: float | None = None

    @property
    def num_tests(self) -> int:
        return len(self.test_names)

    @property
    def stages(self) -> tuple["Task", ...]:
        """What is done and graded one after another: the steps, or the task itself."""
        return self.steps or (self,)

    @property
    def tests(self) -> tuple[Path, ...]:
        """The directories that tests are taken from, later ones over earlier ones."""
        return self.test_dirs or (self.path / "tests",)

    @property
    def solution_dir(self) -> Path:
        """Where the task's own solution lies, if it has one."""
        return self.path / "steps" / self.step_name / "solution" if self.step_name else self.path / "solution"
