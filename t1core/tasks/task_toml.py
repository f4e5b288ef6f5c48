"""task.toml: Harbor's settings of a task, each honoured, refused with the reason, or said to have no effect.

Harbor ignores keys it does not know, so that a typo is silent there; here it is warned of. Values of another type
than Harbor's are refused. What a sandbox kind may or may not be able to give (an image, GPUs, another user) is read
here and left to the kind.

| key                                              | what comes of it                                            |
|--------------------------------------------------|-------------------------------------------------------------|
| verifier.timeout_sec                             | honoured: the time of one grade                             |
| agent.timeout_sec                                | read into the task's record                                 |
| environment.memory_mb, storage_mb                | honoured below the campaign's own limits, which win         |
| environment.cpus, gpus, docker_image, agent.user | left to the sandbox kind, which refuses what it cannot give |
| environment.env, workdir                         | honoured                                                    |
| environment.healthcheck, steps.healthcheck       | honoured: waited for before the agent starts                |
| environment.skills_dir                           | honoured: the agent is told of the skills in the box        |
| environment.mcp_servers                          | told to the agent, for commands and loopback URLs; else refused |
| verifier.env, solution.env                       | honoured                                                    |
| `${NAME:-default}` in an env                     | the default: the host's environment never reaches a box     |
| network_mode = "no-network"                      | what every box is                                           |
| network_mode = "public", allow_internet          | said: boxes have no network                                 |
| network_mode = "allowlist", allowed_hosts        | refused                                                     |
| verifier.user                                    | refused, but for root                                       |
| verifier.environment_mode, environment           | honoured: tests over a fresh box and the task's artifacts   |
| verifier.collect                                 | honoured in the agent's box; other services are refused     |
| artifacts, steps.artifacts                       | what separate tests see; said to have no effect otherwise   |
| steps, multi_step_reward_strategy                | honoured                                                    |
| steps.min_reward                                 | honoured; only the reward called "reward" can be asked for  |
| steps.agent.user                                 | refused, but for the task's own                             |
| os, tpu                                          | refused, but for os = "linux"                               |
| build_timeout_sec, gpu_types                     | said to have no effect                                      |
"""

import math
import re
import tomllib
import unicodedata
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from t1core.records.task import Artifact, Collect, HealthCheck, McpServer, TaskEnvironment
from t1core.tasks.toml_table import Table

DEFAULT_VERIFIER_TIMEOUT_S = 600.0  # Harbor's, for a step too

Schema = Mapping[str, Any]  # None where nothing below is looked at
_NETWORK: Schema = dict.fromkeys(("network_mode", "allowed_hosts"))
_HEALTHCHECK: Schema = dict.fromkeys(
    ("command", "interval_sec", "timeout_sec", "start_period_sec", "start_interval_sec", "retries")
)
_ARTIFACT: Schema = dict.fromkeys(("source", "destination", "exclude", "service"))
_ENVIRONMENT: Schema = {
    **_NETWORK,
    **dict.fromkeys(
        (
            "build_timeout_sec",
            "docker_image",
            "os",
            "cpus",
            "memory_mb",
            "storage_mb",
            "gpus",
            "gpu_types",
            "env",
        )
    ),
    **dict.fromkeys(("workdir", "skills_dir", "memory", "storage", "allow_internet")),
    "tpu": dict.fromkeys(("type", "topology")),
    "healthcheck": _HEALTHCHECK,
    "mcp_servers": dict.fromkeys(("name", "transport", "url", "command", "args", "headers")),
}
_AGENT: Schema = {**_NETWORK, "timeout_sec": None, "user": None}
_VERIFIER: Schema = {
    **_NETWORK,
    **dict.fromkeys(("timeout_sec", "env", "user", "environment_mode")),
    "environment": _ENVIRONMENT,
    "collect": dict.fromkeys(("command", "service", "timeout_sec", "user")),
}
SCHEMA: Schema = {
    **dict.fromkeys(("schema_version", "version", "source", "metadata", "multi_step_reward_strategy")),
    "task": {
        **dict.fromkeys(("name", "version", "description", "keywords")),
        "authors": dict.fromkeys(("name", "email")),
    },
    "agent": _AGENT,
    "verifier": _VERIFIER,
    "environment": _ENVIRONMENT,
    "solution": {"env": None},
    "artifacts": _ARTIFACT,
    "steps": {
        "name": None,
        "min_reward": None,
        "agent": _AGENT,
        "verifier": _VERIFIER,
        "healthcheck": _HEALTHCHECK,
        "artifacts": _ARTIFACT,
    },
}
_WITHOUT_EFFECT = ("build_timeout_sec", "gpu_types")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_BAD_NAME = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')


@dataclass(frozen=True)
class StepToml:
    """One [[steps]] table. `agent_timeout_s` None is the task's; `collect` and `artifacts` are its own, beside the
    task's."""

    name: str
    agent_timeout_s: float | None
    verifier_timeout_s: float
    verifier_env: Mapping[str, str]
    min_reward: float | None
    healthcheck: HealthCheck | None
    collect: tuple[Collect, ...]
    artifacts: tuple[Artifact, ...]
    is_separate: bool
    tests_environment: TaskEnvironment | None


class TaskToml:
    """A task.toml as read. Every getter raises ValueError naming the task, the key, its value and the way out."""

    def __init__(self, text: str, *, directory: Path) -> None:
        """Reads, warns of what has no effect, refuses what no box can give."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"task {directory}: task.toml is not TOML: {error}") from error
        self._root = Table(values, directory=directory)
        self._steps = self._root.tables("steps")
        self._verifiers = [self._root.table("verifier"), *(step.table("verifier") for step in self._steps)]
        self._environments = [self._root.table("environment")]
        self._environments += [each.table("environment") for each in self._verifiers]
        for name in ("task", "metadata", "agent", "solution"):
            self._root.table(name)
        self._warn(stacklevel=4)
        self._check_words()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The [metadata] table."""
        return self._root.table("metadata").values

    @property
    def agent_timeout_s(self) -> float | None:
        return self._root.table("agent").number("timeout_sec", "a number of seconds above 0")

    @property
    def verifier_timeout_s(self) -> float:
        return _verifier_timeout_s(self._verifiers[0])

    @property
    def verifier_env(self) -> Mapping[str, str]:
        return self._verifiers[0].env()

    @property
    def solution_env(self) -> Mapping[str, str]:
        return self._root.table("solution").env()

    @property
    def is_separate(self) -> bool:
        """Whether the tests see a box of their own."""
        return bool(_mode(self._verifiers[0]))

    @property
    def tests_environment(self) -> TaskEnvironment | None:
        """What the tests' own box is to be, where [verifier.environment] says it."""
        return _tests_environment(self._verifiers[0])

    @property
    def collect(self) -> tuple[Collect, ...]:
        """What is run after the agent and before the grade."""
        return _collect(self._verifiers[0])

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """What separate tests see."""
        return _artifacts(self._root)

    @property
    def takes_final_reward(self) -> bool:
        """Whether the last step's reward is the task's, instead of the mean."""
        strategy = self._root.text("multi_step_reward_strategy")
        if strategy not in ("", "mean", "final"):
            raise self._root.refusal("multi_step_reward_strategy", 'must be "mean" or "final"')
        return strategy == "final"

    def steps(self) -> tuple[StepToml, ...]:
        """The steps, none for a task in one."""
        user = self._root.table("agent").text("user")
        out: list[StepToml] = []
        seen: set[str] = set()
        for table, verifier in zip(self._steps, self._verifiers[1:], strict=True):
            name = _step_name(table)
            key = unicodedata.normalize("NFC", name).casefold()
            if key in seen:
                raise table.refusal("name", "another step has it, or one that differs in case; rename one")
            seen.add(key)
            agent = table.table("agent")
            if agent.text("user") not in ("", user or "root"):
                raise agent.refusal(
                    "user", f"a box has one user, agent.user {user or 'root'!r}; leave it out"
                )
            mode = _mode(verifier)
            out.append(
                StepToml(
                    name=name,
                    agent_timeout_s=agent.number("timeout_sec", "a number of seconds above 0"),
                    verifier_timeout_s=_verifier_timeout_s(verifier),
                    verifier_env=self.verifier_env | verifier.env(),
                    min_reward=_min_reward(table),
                    healthcheck=_healthcheck(table),
                    collect=_collect(verifier),
                    artifacts=_artifacts(table),
                    is_separate=self.is_separate if mode is None else mode,
                    tests_environment=_tests_environment(verifier),
                )
            )
        return tuple(out)

    def environment(self, *, has_compose: bool) -> TaskEnvironment:
        """What the task asks of its box."""
        user = self._root.table("agent").text("user")
        return replace(_environment(self._environments[0]), has_compose=has_compose, user=user)

    def _warn(self, *, stacklevel: int) -> None:
        if unknown := list(_unknown(self._root, SCHEMA)):
            self._say(f"task.toml has keys nobody reads: {', '.join(unknown)}", stacklevel)
        idle = [
            f"{each.above}{key}" for each in self._environments for key in _WITHOUT_EFFECT if each.value(key)
        ]
        idle += [
            f"{each.above}{key}"
            for each in self._environments[1:]
            for key in ("healthcheck", "skills_dir", "mcp_servers")
            if each.value(key)
        ]
        if not any(_mode(each) for each in self._verifiers):
            idle += [
                f"{each.above}artifacts" for each in (self._root, *self._steps) if each.value("artifacts")
            ]
        if self._root.value("multi_step_reward_strategy") and not self._steps:
            idle.append("multi_step_reward_strategy")
        if idle:
            self._say(f"task.toml sets what has no effect here: {', '.join(idle)}", stacklevel)
        asking = [
            f"{each.above}network_mode" for each in self._networks() if each.value("network_mode") == "public"
        ]
        asking += [
            f"{each.above}allow_internet"
            for each in self._environments
            if each.value("allow_internet") is True
        ]
        if asking:
            self._say(f"boxes have no network, and {', '.join(asking)} asks for one", stacklevel)

    def _say(self, what: str, stacklevel: int) -> None:
        warnings.warn(f"task {self._root.directory}: {what}", stacklevel=stacklevel + 1)

    def _networks(self) -> list[Table]:
        agents = [self._root.table("agent"), *(step.table("agent") for step in self._steps)]
        return [*self._environments, *agents, *self._verifiers]

    def _check_words(self) -> None:
        for each in self._networks():
            if each.value("network_mode") not in (None, "no-network", "public"):
                raise each.refusal("network_mode", 'boxes have no network; "no-network" says so')
            if each.value("allowed_hosts"):
                raise each.refusal("allowed_hosts", "boxes have no network; leave it out")
        for each in self._environments:
            if each.text("os").lower() not in ("", "linux"):
                raise each.refusal("os", 'boxes are Linux; "linux" or nothing will do')
            if each.value("tpu"):
                raise each.refusal("tpu", "boxes have no TPU")
        for each in self._verifiers:
            if each.text("user") not in ("", "root", "0"):
                raise each.refusal("user", "tests run as root of their own namespaces; leave it out")


def _unknown(table: Table, schema: Schema) -> Iterator[str]:
    """Keys that Harbor's schema does not have, here and below."""
    for key, value in table.values.items():
        below = schema.get(key)
        if key not in schema:
            yield f"{table.above}{key}"
        elif below is not None and isinstance(value, dict):
            yield from _unknown(table.table(key), below)
        elif below is not None and isinstance(value, list) and all(isinstance(item, dict) for item in value):
            for item in table.tables(key):
                yield from _unknown(item, below)


def _verifier_timeout_s(table: Table) -> float:
    return table.number("timeout_sec", "a number of seconds above 0") or DEFAULT_VERIFIER_TIMEOUT_S


def _environment(table: Table) -> TaskEnvironment:
    return TaskEnvironment(
        workdir=table.text("workdir") or None,
        env=table.env(),
        cpus=table.number("cpus", "a number of cores above 0"),
        memory_mb=table.megabytes("memory"),
        storage_mb=table.megabytes("storage"),
        num_gpus=table.whole("gpus", 0),
        docker_image=table.text("docker_image"),
        healthcheck=_healthcheck(table),
        skills_dir=table.text("skills_dir"),
        mcp_servers=tuple(_mcp_server(each) for each in table.tables("mcp_servers")),
    )


def _healthcheck(table: Table) -> HealthCheck | None:
    check = table.table("healthcheck")
    if not check.values:
        return None
    usual = HealthCheck("")
    return HealthCheck(
        command=check.needed_text("command"),
        interval_s=check.seconds("interval_sec", usual.interval_s),
        timeout_s=check.seconds("timeout_sec", usual.timeout_s),
        start_period_s=check.seconds("start_period_sec", usual.start_period_s),
        start_interval_s=check.seconds("start_interval_sec", usual.start_interval_s),
        retries=check.whole("retries", usual.retries),
    )


def _mcp_server(table: Table) -> McpServer:
    transport = table.text("transport") or "sse"
    transport = "streamable-http" if transport == "http" else transport
    if transport not in ("stdio", "sse", "streamable-http"):
        raise table.refusal("transport", "must be stdio, sse or streamable-http")
    if transport == "stdio":
        words = [table.needed_text("command"), *table.texts("args")]
        return McpServer(table.needed_text("name"), transport, " ".join(words))
    if table.value("headers"):
        raise table.refusal("headers", "the agent is told an address and no headers; leave them out")
    url = table.needed_text("url")
    if urlsplit(url).hostname not in _LOOPBACK:
        raise table.refusal("url", "boxes have no network; start the server in the box and name localhost")
    return McpServer(table.needed_text("name"), transport, url)


def _mode(verifier: Table) -> bool | None:
    """Whether tests are to be separate; None where neither the mode nor an environment says it."""
    mode = verifier.text("environment_mode")
    if mode not in ("", "shared", "separate"):
        raise verifier.refusal("environment_mode", 'must be "shared" or "separate"')
    if mode == "shared" and verifier.value("environment"):
        raise verifier.refusal(
            "environment_mode", "contradicts [verifier.environment]; leave one of them out"
        )
    return mode == "separate" if mode else True if verifier.value("environment") is not None else None


def _tests_environment(verifier: Table) -> TaskEnvironment | None:
    return None if verifier.value("environment") is None else _environment(verifier.table("environment"))


def _collect(verifier: Table) -> tuple[Collect, ...]:
    out = []
    for hook in verifier.tables("collect"):
        if hook.text("service") not in ("", "main"):
            raise hook.refusal("service", "a box is one container; it is the service called main")
        if hook.text("user") not in ("", "root", "0"):
            raise hook.refusal("user", "commands run as the box's one user; leave it out")
        out.append(Collect(hook.needed_text("command"), hook.seconds("timeout_sec", Collect("").timeout_s)))
    return tuple(out)


def _artifacts(table: Table) -> tuple[Artifact, ...]:
    found = table.value("artifacts") or []
    if not isinstance(found, list) or not all(isinstance(item, str | dict) for item in found):
        raise table.refusal("artifacts", "must be a list of paths, or of tables with a source")
    out = []
    for index, item in enumerate(found):
        entry = Table(
            {"source": item} if isinstance(item, str) else item,
            directory=table.directory,
            above=f"{table.above}artifacts[{index}].",
        )
        if entry.text("service") not in ("", "main"):
            raise entry.refusal("service", "a box is one container; it is the service called main")
        source = entry.needed_text("source")
        if ".." in PurePosixPath(source).parts:
            raise entry.refusal("source", "must not lead upwards with ..")
        out.append(Artifact(source, entry.texts("exclude")))
    return tuple(out)


def _step_name(table: Table) -> str:
    name = table.needed_text("name")
    if name in (".", "..") or name.endswith((".", " ")) or not name.strip() or _BAD_NAME.search(name):
        raise table.refusal(
            "name", "must be usable as a directory's name: no / and the like, no dot at its end"
        )
    return name


def _min_reward(table: Table) -> float | None:
    value = table.value("min_reward")
    if isinstance(value, dict):
        if set(value) != {"reward"}:
            raise table.refusal("min_reward", 'a step has one reward, called "reward"; ask for that alone')
        value = value["reward"]
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if value is not None and not is_number:
        raise table.refusal("min_reward", "must be a number, and a finite one")
    return None if value is None else float(value)
