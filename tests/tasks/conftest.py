"""A small practice pool, generated once for these tests."""

from pathlib import Path

import pytest

from t1core.tasks.pool import Pool
from t1core.tasks.practice.pool import generate_pool


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """Two training tasks, one held-out task a family, and three tasks of each unseen family."""
    directory = tmp_path_factory.mktemp("practice") / "pool"
    return generate_pool(directory, seed=5, tasks_per_family=2, heldout_per_family=1, heldout_family_tasks=3)


@pytest.fixture
def task_directory(tmp_path: Path) -> Path:
    """A hand-written task with two tests."""
    directory = tmp_path / "greet"
    (directory / "tests").mkdir(parents=True)
    (directory / "instruction.md").write_text("Write hello to a.txt.\n")
    (directory / "task.toml").write_text('schema_version = "1.4"\n[agent]\ntimeout_sec = 30\n')
    (directory / "tests" / "test_outputs.py").write_text("def test_b(): pass\n\n\ndef test_a(): pass\n")
    return directory
