"""Small task directories that the pool tests are made of."""

from pathlib import Path

TESTS = """from pathlib import Path

ROOT = Path("/app")


def test_there():
    assert (ROOT / "out.txt").is_file()


def test_says_so():
    assert (ROOT / "out.txt").read_text() == "hello moon\\n"
"""
SOLUTION = "#!/bin/bash\necho hello moon > /app/out.txt\n"


def write_task(
    directory: Path,
    *,
    toml: str = "",
    instruction: str = "Write the greeting of the moon to /app/out.txt.\n",
    tests: str = TESTS,
    solution: str | None = SOLUTION,
    files: dict[str, str] | None = None,
    script: str | None = None,
) -> Path:
    """Write one task in Harbor's layout."""
    texts = {"instruction.md": instruction, "task.toml": toml, "tests/test_outputs.py": tests}
    if solution is not None:
        texts["solution/solve.sh"] = solution
    if script is not None:
        texts["tests/test.sh"] = script
        if not tests:
            del texts["tests/test_outputs.py"]
    dockerfile = "FROM python:3.12-slim\nWORKDIR /app\n"
    for name, text in (files or {}).items():
        texts[f"environment/files/{name}"] = text
        dockerfile += f"COPY files/{name} /app/{name}\n"
    texts["environment/Dockerfile"] = dockerfile
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory
