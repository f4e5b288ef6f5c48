"""What must hold of a pool's tasks, whatever they are."""

import pandas as pd

from t1core.analysis.checks import Check


def check_pool(tasks: pd.DataFrame) -> list[Check]:
    """Checks of a frame with a row a task (`t1core.pools.report.task_frame`)."""
    names, bare = tasks["task_id"], tasks[tasks["num_tests"] < 1]
    passing = tasks[(tasks["nop_passed"] >= tasks["num_tests"]) & (tasks["standing"] == "accept")]
    return [
        Check("every task has a name of its own", bool(names.is_unique), f"{len(names)} tasks"),
        Check("every task has a test", bare.empty, ", ".join(bare["task_id"].head(5)) or "none lacks one"),
        Check(
            "no accepted task is solved with nothing done",
            passing.empty,
            ", ".join(passing["task_id"].head(5)) or "none is",
        ),
    ]
