"""Task files: an exercise written in Harbor's layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from t1core.tasks.practice.checks import test_module
from t1core.tasks.practice.exercise import Exercise

GENERATOR_VERSION = 1

TEST_SCRIPT = """#!/bin/bash
pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


@dataclass(frozen=True)
class TaskFiles:
    """Every file of a task: path relative to the task's directory -> text."""

    texts: Mapping[str, str]

    @property
    def instruction(self) -> str:
        return self.texts["instruction.md"].strip()

    def write(self, directory: Path) -> None:
        """Write under a directory, which must not hold a task yet. Scripts become executable."""
        for name, text in self.texts.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            for parent in path.relative_to(directory).parents:
                (directory / parent).chmod(0o755)  # whatever the umask: boxes run as another user
            path.write_text(text)
            executable = name in ("tests/test.sh", "solution/solve.sh")
            path.chmod(0o755 if executable else 0o644)


def render(
    exercise: Exercise, *, family: str, level: int, split: str, seed: int, index: int, space: str
) -> TaskFiles:
    """The Harbor layout of one exercise. The image needs bash, pytest and pytest-json-ctrf."""
    dockerfile = "FROM python:3.12-slim\nWORKDIR /app\n" + ("COPY files/ /app/\n" if exercise.files else "")
    solution = '#!/bin/bash\ncd "${T1_APP_ROOT:-/app}"\n' + "\n".join(exercise.demonstration.commands) + "\n"
    texts = {
        "instruction.md": exercise.instruction + "\n",
        "task.toml": _settings(family=family, level=level, split=split, seed=seed, index=index, space=space),
        "environment/Dockerfile": dockerfile,
        **{f"environment/files/{name}": text for name, text in exercise.files.items()},
        "solution/solve.sh": solution,
        "tests/test.sh": TEST_SCRIPT,
        "tests/test_outputs.py": test_module(exercise.checks),
    }
    return TaskFiles(texts)


def _settings(*, family: str, level: int, split: str, seed: int, index: int, space: str) -> str:
    return f"""schema_version = "1.4"

[metadata]
family = "{family}"
split = "{split}"
level = {level}
seed = {seed}
index = {index}
space = "{space}"
generator_version = {GENERATOR_VERSION}

[agent]
timeout_sec = 60.0
network_mode = "no-network"

[verifier]
timeout_sec = 30.0

[environment]
cpus = 1
memory_mb = 512
storage_mb = 64
network_mode = "no-network"
"""
