"""Terminal-Bench's first layout: task.yaml, Dockerfile, docker-compose.yaml, run-tests.sh, solution.sh, tests/.

| there                                        | here                                                      |
|----------------------------------------------|-----------------------------------------------------------|
| task.yaml: instruction                       | instruction.md                                            |
| max_agent_timeout_sec, max_test_timeout_sec  | the timeouts of task.toml                                 |
| category, difficulty                         | metadata                                                  |
| solution.sh, or the commands of solution.yaml | solution/solve.sh                                        |
| tests/, judged by pytest                     | tests/, whose functions are counted                       |
| run-tests.sh                                 | left out: t1core runs pytest itself                       |
| docker-compose.yaml of one service           | left out; one of several is refused                       |
| all else                                     | environment/                                              |
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from t1core.pools.convert.directory import NotConverted, write_task

_OURS = {"task.yaml", "run-tests.sh", "solution.sh", "solution.yaml", "tests", "docker-compose.yaml"}


def terminal_bench_tasks(source: Path) -> Iterator[tuple[str, Path]]:
    """Names and places of the tasks below a directory."""
    for path in sorted(source.rglob("task.yaml")):
        yield path.parent.name, path.parent


def convert_terminal_bench(place: Path, target: Path, *, about: dict[str, Any]) -> None:
    """Write one task. Raises NotConverted."""
    settings = _yaml(place / "task.yaml")
    if not isinstance(settings, dict) or not str(settings.get("instruction", "")).strip():
        raise NotConverted("task.yaml has no instruction")
    parser = settings.get("parser_name", "pytest")
    if parser != "pytest":
        raise NotConverted(f"parser_name {parser!r}: only pytest's tests can be counted")
    if not (place / "tests" / "test_outputs.py").is_file():
        raise NotConverted("tests/test_outputs.py is missing")
    compose = _yaml(place / "docker-compose.yaml") if (place / "docker-compose.yaml").is_file() else {}
    if len((compose or {}).get("services", {})) > 1:
        raise NotConverted(f"{len(compose['services'])} services: a box is one container")
    for path in sorted(place.iterdir()):
        if path.name not in _OURS:
            (target / "environment").mkdir(parents=True, exist_ok=True)
            # Links stay links: what they lead to may be none of the task's.
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, target / "environment" / path.name, symlinks=True)
            else:
                shutil.copy2(path, target / "environment" / path.name, follow_symlinks=False)
    shutil.copytree(place / "tests", target / "tests", symlinks=True)
    texts = {"instruction.md": str(settings["instruction"]).strip() + "\n"}
    if (solution := _solution(place)) is not None:
        texts["solution/solve.sh"] = solution
    write_task(
        target,
        texts=texts,
        metadata=about
        | {
            "family": str(settings.get("category", "unknown")),
            "difficulty": str(settings.get("difficulty", "")),
        },
        agent_timeout_s=settings.get("max_agent_timeout_sec"),
        verifier_timeout_s=settings.get("max_test_timeout_sec"),
    )


def _solution(place: Path) -> str | None:
    if (place / "solution.sh").is_file():
        return (place / "solution.sh").read_text()
    if not (place / "solution.yaml").is_file():
        return None
    commands = [
        item.get("command", "") for item in _yaml(place / "solution.yaml") or [] if isinstance(item, dict)
    ]
    return "#!/bin/bash\n" + "\n".join(commands) + "\n"


def _yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise NotConverted(f"{path.name} is not YAML: {' '.join(str(error).split())[:120]}") from error
