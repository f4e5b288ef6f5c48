"""Attempts of the fixed policy at the tasks of each round, graded in boxes, one JSON line an attempt; gone on with."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from t1core.pools.synthesis.candidate import work_lines
from t1core.pools.synthesis.policy import Attempt, attempt_seed, faulty_solution
from t1core.records import Grade
from t1core.store.atomic import append_line, drop_torn_line

ATTEMPTS_NAME = "attempts.jsonl"

Play = Callable[[Path, str], Awaitable[Grade]]


async def attempt_tasks(
    tasks: Sequence[tuple[int, Path]],
    *,
    num_attempts: int,
    error_rate: float,
    seed: int,
    play: Play,
    output: Path,
    say: Callable[[Attempt], None],
) -> list[Attempt]:
    """Attempt each (round, task directory) `num_attempts` times, but for what `output` has already; all attempts.

    `play` runs a script in a box of the task and grades what it left. An attempt that no grade came to, for a reason of
    the machine's, is not written, and is made again by the next run. ValueError for a file of another policy.
    """
    head = {"kind": "t1core policy attempts", "schema_version": 1, "error_rate": error_rate, "seed": seed}
    drop_torn_line(output)
    if not output.exists() or not output.stat().st_size:
        append_line(output, json.dumps(head))
    found, known = read_attempts(output)
    if found != head:
        raise ValueError(
            f"attempts {output} are of error_rate {found.get('error_rate')} and seed {found.get('seed')}, now they are "
            f"{error_rate} and {seed}; remove the file, or go on as it was begun"
        )
    done = {(one.task_id, one.attempt) for one in known}
    for number, directory in tasks:
        script = (directory / "solution" / "solve.sh").read_text()
        for attempt in range(num_attempts):
            if (directory.name, attempt) in done:
                continue
            faulty, num_left_out = faulty_solution(
                script, error_rate=error_rate, seed=attempt_seed(directory, attempt, seed=seed)
            )
            grade = await play(directory, faulty)
            if grade.reward is None:
                continue
            made = Attempt(
                task_id=directory.name,
                round=number,
                attempt=attempt,
                num_commands=len(work_lines(script)),
                num_left_out=num_left_out,
                num_tests=grade.total,
                num_passed=grade.passed,
                is_solved=grade.solved,
            )
            append_line(output, json.dumps(asdict(made)))
            known.append(made)
            say(made)
    return known


def read_attempts(path: Path) -> tuple[dict[str, object], list[Attempt]]:
    """(first line, the attempts). ValueError for another file."""
    head, *lines = path.read_text().splitlines()
    try:
        return json.loads(head), [Attempt(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"attempts {path} cannot be read ({type(error).__name__}: {error}); remove the file"
        ) from error
