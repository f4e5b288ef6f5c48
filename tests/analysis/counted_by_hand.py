"""A made-up file of counted trials: two policies, two tasks, four trials each, and records without a grade."""

import json
from pathlib import Path

PASSED = {
    ("weak", "easy"): (0, 1, 1, 2),
    ("weak", "hard"): (0, 0, 1, 1),
    ("strong", "easy"): (2, 2, 2, 2),
    ("strong", "hard"): (1, 1, 4, 4),
}
NUM_TESTS = {"easy": 2, "hard": 4}
COLUMNS = ["model", "task", "trial", "T", "P", "b", "steps", "exc"]
UNGRADED = [
    ["weak", "result.json", "result.json", None, None, None, None, None],  # a summary, no trial
    ["weak", "hard", "hard__x", None, None, 0.0, 60, "AgentTimeoutError"],  # no report
    ["strong", "hard", "hard__y", 0, 0, 0.0, 30, None],  # a report without a test
]


def rows(passed=PASSED, *, num_tests=NUM_TESTS):
    return [
        [policy, task, f"{task}__{i}", num_tests[task], p, float(p == num_tests[task]), 10, None]
        for (policy, task), counts in passed.items()
        for i, p in enumerate(counts)
    ]


def write_trials(path: Path, records=None) -> Path:
    stored = {
        "source": "made up",
        "columns": COLUMNS,
        "rows": rows() + UNGRADED if records is None else records,
    }
    path.write_text(json.dumps(stored))
    return path
