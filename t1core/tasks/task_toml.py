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
| verifier.env, solution.env                       | honoured                                                    |
| `${NAME:-default}` in an env                     | the default: the host's environment never reaches a box     |
| network_mode = "no-network"                      | what every box is                                           |
| network_mode = "public", allow_internet          | said: boxes have no network                                 |
| network_mode = "allowlist", allowed_hosts        | refused                                                     |
| verifier.user                                    | refused, but for root                                       |
| verifier.environment_mode, environment, collect  | refused, but for "shared": tests see the agent's files      |
| os, tpu, healthcheck, skills_dir, mcp_servers    | refused, but for os = "linux"                               |
| steps                                            | refused                                                     |
| build_timeout_sec, gpu_types, artifacts          | said to have no effect                                      |
"""

import re
import tomllib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t1core.records.task import TaskEnvironment

DEFAULT_VERIFIER_TIMEOUT_S = 600.0  # Harbor's

_NETWORK = {"network_mode", "allowed_hosts"}
_ENVIRONMENT = _NETWORK | {
    "build_timeout_sec", "docker_image", "os", "cpus", "memory_mb", "storage_mb", "gpus", "gpu_types", "tpu",
    "env", "workdir", "healthcheck", "skills_dir", "mcp_servers", "memory", "storage", "allow_internet",
}  # fmt: skip
_ROOT = {
    "schema_version", "version", "task", "metadata", "agent", "verifier", "environment", "solution",
    "artifacts", "source", "steps", "multi_step_reward_strategy",
}  # fmt: skip
_TABLES = {
    "task": {"name", "version", "description", "authors", "keywords"},
    "agent": _NETWORK | {"timeout_sec", "user"},
    "verifier": _NETWORK | {"timeout_sec", "env", "user", "environment_mode", "environment", "collect"},
    "environment": _ENVIRONMENT,
    "solution": {"env"},
}
_WITHOUT_EFFECT = (
    "environment.build_timeout_sec",
    "environment.gpu_types",
    "artifacts",
    "multi_step_reward_strategy",
)
_REFUSED = {
    "steps": "multi-step tasks ([[steps]]) are not supported; split it into tasks",
    "environment.tpu": "boxes have no TPU",
    "environment.healthcheck": "boxes run no service to wait for",
    "environment.skills_dir": "the agent has no skills; put the text into instruction.md",
    "environment.mcp_servers": "the agent has a terminal and no MCP client",
    "verifier.environment": "tests run over the agent's files, not in an environment of their own",
    "verifier.collect": "tests see the agent's files as they are; read them there",
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_UNIT_MB = {"K": 2**-10, "M": 1, "G": 2**10, "T": 2**20}
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class TaskToml:
    """A task.toml as read. Every getter raises ValueError naming the task, the key, its value and the way out."""

    def __init__(self, text: str, *, directory: Path) -> None:
        """Reads, warns of what has no effect, refuses what no box can give."""
        self._directory = directory
        try:
            self._settings: Mapping[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"task {directory}: task.toml is not TOML: {error}") from error
        for name in _TABLES:
            self.table(name)
        self._warn(stacklevel=4)
        for key, reason in _REFUSED.items():
            if self._value(key):
                raise self._refusal(key, reason)
        self._check_words()

    def table(self, name: str) -> Mapping[str, Any]:
        """A table of the file, empty when it is not there."""
        table = self._settings.get(name, {})
        if not isinstance(table, dict):
            raise ValueError(f"task {self._directory}: task.toml {name} must be a table, not {table!r}")
        return table

    def timeout_s(self, name: str) -> float | None:
        """`timeout_sec` of the agent or the verifier."""
        return self._number(f"{name}.timeout_sec", "a number of seconds above 0")

    def env(self, name: str) -> Mapping[str, str]:
        """`env` of a table, variables of the host replaced by their defaults."""
        table = self._value(f"{name}.env") or {}
        if not isinstance(table, dict):
            raise self._refusal(f"{name}.env", "must be a table of names and values")
        out = {}
        for key, value in table.items():
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                raise self._refusal(f"{name}.env.{key}", "must be text")
            out[key] = _VARIABLE.sub(self._default(f"{name}.env.{key}"), str(value))
        return out

    def environment(self, *, has_compose: bool) -> TaskEnvironment:
        """What the task asks of its box."""
        num_gpus = self._value("environment.gpus") or 0
        if isinstance(num_gpus, bool) or not isinstance(num_gpus, int) or num_gpus < 0:
            raise self._refusal("environment.gpus", "must be a number of GPUs")
        return TaskEnvironment(
            workdir=self._text("environment.workdir") or None,
            env=self.env("environment"),
            cpus=self._number("environment.cpus", "a number of cores above 0"),
            memory_mb=self._megabytes("memory"),
            storage_mb=self._megabytes("storage"),
            num_gpus=num_gpus,
            docker_image=self._text("environment.docker_image"),
            has_compose=has_compose,
            user=self._text("agent.user"),
        )

    def _warn(self, *, stacklevel: int) -> None:
        unknown = [key for key in self._settings if key not in _ROOT]
        for name, known in _TABLES.items():
            unknown += [f"{name}.{key}" for key in self.table(name) if key not in known]
        if unknown:
            self._say(f"task.toml has keys nobody reads: {', '.join(unknown)}", stacklevel)
        idle = [key for key in _WITHOUT_EFFECT if self._value(key)]
        if idle:
            self._say(f"task.toml sets what has no effect here: {', '.join(idle)}", stacklevel)
        wants_network = [
            f"{name}.network_mode"
            for name in ("environment", "agent", "verifier")
            if self._value(f"{name}.network_mode") == "public"
        ]
        if self._value("environment.allow_internet") is True:
            wants_network.append("environment.allow_internet")
        if wants_network:
            self._say(f"boxes have no network, and {', '.join(wants_network)} asks for one", stacklevel)

    def _say(self, what: str, stacklevel: int) -> None:
        warnings.warn(f"task {self._directory}: {what}", stacklevel=stacklevel + 1)

    def _check_words(self) -> None:
        for name in ("environment", "agent", "verifier"):
            mode = self._value(f"{name}.network_mode")
            if mode not in (None, "no-network", "public"):
                raise self._refusal(f"{name}.network_mode", 'boxes have no network; "no-network" says so')
            if self._value(f"{name}.allowed_hosts"):
                raise self._refusal(f"{name}.allowed_hosts", "boxes have no network; leave it out")
        if self._text("environment.os").lower() not in ("", "linux"):
            raise self._refusal("environment.os", 'boxes are Linux; "linux" or nothing will do')
        if self._text("verifier.environment_mode") not in ("", "shared"):
            raise self._refusal(
                "verifier.environment_mode", 'tests run over the agent\'s files; "shared" says so'
            )
        if self._text("verifier.user") not in ("", "root", "0"):
            raise self._refusal("verifier.user", "tests run as root of their own namespaces; leave it out")

    def _value(self, key: str) -> Any:
        table, _, name = key.rpartition(".")
        return (self.table(table) if table else self._settings).get(name)

    def _text(self, key: str) -> str:
        value = self._value(key)
        if value is None:
            return ""
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise self._refusal(key, "must be text")
        return str(value)

    def _number(self, key: str, what: str) -> float | None:
        value = self._value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self._refusal(key, f"must be {what}")
        return float(value)

    def _megabytes(self, name: str) -> int | None:
        """`<name>_mb`, or Harbor's older `<name> = "2G"`."""
        size = self._number(f"environment.{name}_mb", "a number of megabytes above 0")
        text = self._value(f"environment.{name}")
        if text is None:
            return None if size is None else max(1, int(size))
        match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise self._refusal(f"environment.{name}", 'must be a size such as "2G"')
        older = float(match[1]) * _UNIT_MB[match[2].upper()]
        if size is not None and int(size) != int(older):
            raise self._refusal(f"environment.{name}", f"contradicts {name}_mb {size:g}; leave it out")
        return max(1, int(older))

    def _default(self, key: str) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            if match[2] is None:
                raise self._refusal(
                    key, f"the host's environment never reaches a box; write ${{{match[1]}:-default}}"
                )
            return match[2]

        return replace

    def _refusal(self, key: str, reason: str) -> ValueError:
        return ValueError(f"task {self._directory}: {key} {self._value_of_path(key)!r}: {reason}")

    def _value_of_path(self, key: str) -> Any:
        value: Any = self._settings
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value
