"""A fixed policy: it types the reference solution and, with a stated probability, leaves a command out.

It is no model and learns nothing. Its one error rate turns a task's length into difficulty in a way that can be
computed: n commands that all matter come through with (1 - error_rate) ** n. It knows the solution, so it says nothing
of how hard a task is to understand.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from t1core.pools.synthesis.candidate import work_lines


@dataclass(frozen=True)
class Attempt:
    """One graded attempt. `num_commands` of the solution, of which `num_left_out` were not typed."""

    task_id: str
    round: int
    attempt: int
    num_commands: int
    num_left_out: int
    num_tests: int
    num_passed: int
    is_solved: bool


def faulty_solution(script: str, *, error_rate: float, seed: str) -> tuple[str, int]:
    """(the script with each command left out with that probability, how many were); the same for the same seed."""
    if not 0 <= error_rate <= 1:
        raise ValueError(f"error_rate={error_rate} must be from 0 to 1")
    draw = random.Random(seed)
    lost = {number for number in work_lines(script) if draw.random() < error_rate}
    lines = [line for number, line in enumerate(script.splitlines()) if number not in lost]
    return "\n".join(lines) + "\n", len(lost)


def attempt_seed(task_directory: Path, attempt: int, *, seed: int) -> str:
    """What an attempt's errors are drawn from."""
    return f"policy/{seed}/{task_directory.name}/{attempt}"
