"""Tests run in this process: only for tasks that our own generator wrote, never for anybody else's.

A process of pytest a task would take minutes for a pool; calling the functions takes a millisecond.
"""

import os
from pathlib import Path

from t1core.tasks.harbor import test_functions


def passing_tests(task_directory: Path, *, root: Path) -> tuple[str, ...]:
    """CTRF names of the tests that pass on the workspace at `root`, in file order."""
    source = (task_directory / "tests" / "test_outputs.py").read_text()
    before = os.environ.get("T1_APP_ROOT")
    os.environ["T1_APP_ROOT"] = str(root)
    try:
        module: dict[str, object] = {"__name__": "test_outputs"}
        exec(compile(source, str(task_directory / "tests" / "test_outputs.py"), "exec"), module)
    finally:
        if before is None:
            del os.environ["T1_APP_ROOT"]
        else:
            os.environ["T1_APP_ROOT"] = before
    return tuple(f"test_outputs.py::{name}" for name in test_functions(source) if _passes(module[name]))


def untouched_passes(task_directory: Path) -> tuple[str, ...]:
    """CTRF names of the tests that pass before anyone has done anything."""
    return passing_tests(task_directory, root=task_directory / "environment" / "files")


def _passes(test: object) -> bool:
    assert callable(test)
    try:
        test()
    except Exception:  # a failing test may fail in any way: a missing file is an OSError
        return False
    return True
