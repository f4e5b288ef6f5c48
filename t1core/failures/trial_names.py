"""An evaluation that keeps a trial's report in a directory named by task and attempt, whoever was evaluated before.

Reports are real CTRF files on disk, read by `verifier.ctrf`. A model here is what it passes: a share of tests, and of
trials whose verifier ends before it has written a report.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from t1core.verifier.ctrf import parse_report
from t1core.verifier.reward import counted_reward, no_reward

TESTS = ("test_a", "test_b", "test_c", "test_d")


@dataclass(frozen=True)
class Evaluated:
    """A model by its chances: that a test passes, and that a verifier dies before its report."""

    name: str
    passes: float
    verifier_dies: float


def evaluate(model: Evaluated, *, tasks: Sequence[str], jobs: Path, seed: int) -> pd.DataFrame:
    """A row a task: whether its verifier wrote a report, whose report was read, and the reward.

    The trial's directory is `jobs/TASK__1`. Where the verifier dies, whatever lies there is read.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for task in tasks:
        report = jobs / f"{task}__1" / "ctrf.json"
        report.parent.mkdir(parents=True, exist_ok=True)
        passed = rng.random(len(TESTS)) < model.passes
        died = rng.random() < model.verifier_dies
        if not died:
            _write_report(report, passed=passed, author=model.name)
        author = json.loads(report.read_text())["results"]["tool"]["name"] if report.is_file() else ""
        rows.append(dict(task=task, wrote=not died, read_from=author, reward=_reward(report)))
    return pd.DataFrame(rows)


def _reward(report: Path) -> float | None:
    if not report.is_file():
        return no_reward().reward
    found = parse_report(report.read_bytes(), expected=TESTS)
    return counted_reward("dense", passed=found.passed, total=len(TESTS)).reward


def _write_report(path: Path, *, passed: np.ndarray, author: str) -> None:
    tests = [
        {"name": name, "status": "passed" if good else "failed", "duration": 1}
        for name, good in zip(TESTS, passed, strict=True)
    ]
    summary = {"tests": len(tests), "passed": int(passed.sum()), "failed": int((~passed).sum())}
    summary |= {"pending": 0, "skipped": 0, "other": 0, "start": 0, "stop": 1}
    path.write_text(json.dumps({"results": {"tool": {"name": author}, "summary": summary, "tests": tests}}))
