"""The practice pool on disk: hundreds of small terminal tasks, the same bytes for the same seed.

from t1core.tasks.practice.pool import generate_pool
pool = generate_pool(Path("pool"), seed=0)
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from t1core.tasks.index import write_index
from t1core.tasks.pool import Pool
from t1core.tasks.practice.exercise import Demonstration
from t1core.tasks.practice.families import (
    HELDOUT_FAMILIES,
    LEVEL_MIX,
    LEVELS,
    TRAINED,
    Space,
    exercise,
    substance_hash,
)
from t1core.tasks.practice.passing import untouched_passes
from t1core.tasks.practice.render import TaskFiles, render

SPLITS = ("train", "heldout", "heldout_family")


def oracle(
    family: str,
    *,
    seed: int,
    index: int,
    space: Space = Space.TRAIN,
    level: int | None = None,
    split: str = "train",
) -> tuple[TaskFiles, Demonstration]:
    """One task's files and its reference solution with every command's exact output."""
    made, chosen = exercise(family, seed=seed, index=index, space=space, level=level)
    files = render(made, family=family, level=chosen, split=split, seed=seed, index=index, space=space)
    return files, made.demonstration


def generate_pool(
    directory: Path,
    *,
    seed: int = 0,
    tasks_per_family: int = 30,
    heldout_per_family: int = 6,
    heldout_family_tasks: int = 24,
    families: Sequence[str] = TRAINED,
    level_mix: Sequence[float] = LEVEL_MIX,
    max_level: int = 3,
) -> Pool:
    """Write a pool and its index, then open it. Nothing appears at `directory` unless all of it does.

    `train` and `heldout` take that many tasks of each trained family, `heldout_family` of each family never
    trained. `level_mix` weighs levels 1, 2 and 3; `max_level` bounds `train` alone. Index order takes the
    families in turn, so the first tasks of a split are of many kinds. No two tasks share files, tests and
    solution. Raises ValueError if the directory exists or a setting is wrong.
    """
    directory = Path(directory)
    if directory.exists():
        raise ValueError(
            f"directory {directory} exists: a pool is never written over; choose another or remove it"
        )
    unknown = [name for name in families if name not in TRAINED]
    if unknown or not families:
        raise ValueError(f"families {unknown or families}: give some of {', '.join(TRAINED)}")
    if tasks_per_family < 1 or heldout_per_family < 0 or heldout_family_tasks < 0:
        raise ValueError(
            f"tasks_per_family {tasks_per_family} must be at least 1, and the held-out counts at least 0"
        )
    if len(level_mix) != 3 or min(level_mix) < 0 or sum(level_mix) <= 0:
        raise ValueError(f"level_mix {tuple(level_mix)} must be three weights, at least one above 0")
    weights = zip(LEVELS, level_mix, strict=True)
    train_mix = tuple(weight if level <= max_level else 0.0 for level, weight in weights)
    if sum(train_mix) <= 0:
        raise ValueError(f"max_level {max_level} leaves no level of level_mix {tuple(level_mix)}; raise it")
    plan = [(name, "train", Space.TRAIN, tasks_per_family, train_mix) for name in families]
    plan += [(name, "heldout", Space.HELDOUT, heldout_per_family, level_mix) for name in families]
    unseen = [
        (name, "heldout_family", Space.TRAIN, heldout_family_tasks, level_mix) for name in HELDOUT_FAMILIES
    ]

    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        nop_passed: dict[str, tuple[str, ...]] = {}
        for name, split, space, number, mix in [*plan, *unseen]:
            nop_passed |= _write_family(
                partial, family=name, split=split, space=space, number=number, seed=seed, level_mix=mix
            )
        partial.chmod(0o755)
        write_index(partial, nop_passed=nop_passed)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Pool.open(directory)


def _write_family(
    directory: Path,
    *,
    family: str,
    split: str,
    space: Space,
    number: int,
    seed: int,
    level_mix: Sequence[float],
) -> dict[str, tuple[str, ...]]:
    """Write `number` different tasks, passing over repeats; return what each passes untouched, by task id."""
    nop_passed: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    index = 0
    while len(seen) < number:
        made, level = exercise(family, seed=seed, index=index, space=space, level_mix=level_mix)
        digest = substance_hash(made)
        if digest not in seen:
            seen.add(digest)
            task_id = f"{split}-{index:04d}-{family}"
            files = render(made, family=family, level=level, split=split, seed=seed, index=index, space=space)
            files.write(directory / task_id)
            nop_passed[task_id] = untouched_passes(directory / task_id)
        index += 1
    return nop_passed
