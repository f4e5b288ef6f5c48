"""The families of the practice pool and the seeded exercise of each (family, seed, index)."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count as integers

from t1core.tasks.practice import combined, direct, looking
from t1core.tasks.practice.draw import Draw
from t1core.tasks.practice.exercise import Exercise

LEVELS = (1, 2, 3)
LEVEL_MIX = (0.6, 0.25, 0.15)
HELDOUT_BUCKETS = 8


class Space(StrEnum):
    """Where an exercise belongs. HELDOUT and the other two never share an exercise; see `exercise`."""

    TRAIN = "train"
    HELDOUT = "heldout"
    CORPUS = "corpus"


@dataclass(frozen=True)
class Family:
    """A kind of task. `looks_first` is true where the instruction lacks the words to act on."""

    name: str
    build: Callable[[Draw, int], Exercise]
    looks_first: bool
    trained: bool


def _families() -> Mapping[str, Family]:
    trained = [
        (
            False,
            (
                direct.create,
                direct.write,
                direct.nest,
                direct.append,
                direct.copy,
                direct.move,
                direct.remove,
            ),
        ),
        (False, (direct.mode, direct.report, direct.gather)),
        (True, (looking.todo, looking.config, looking.search, looking.label, looking.count, looking.chain)),
    ]
    families = [Family(b.__name__, b, looks_first, True) for looks_first, builds in trained for b in builds]
    families += [Family(b.__name__, b, True, False) for b in (combined.relocate, combined.survey)]
    return {family.name: family for family in families}


FAMILIES: Mapping[str, Family] = _families()
TRAINED: tuple[str, ...] = tuple(name for name, family in FAMILIES.items() if family.trained)
HELDOUT_FAMILIES: tuple[str, ...] = tuple(name for name, family in FAMILIES.items() if not family.trained)


def exercise(
    family: str,
    *,
    seed: int,
    index: int,
    space: Space = Space.TRAIN,
    level: int | None = None,
    level_mix: Sequence[float] = LEVEL_MIX,
) -> tuple[Exercise, int]:
    """The exercise of (family, seed, index) in a space, and its level (drawn from `level_mix` unless given).

    Of all possible exercises those whose substance hash falls into bucket 0 of 8 are held out. A space draws
    until it gets one of its own side, so a held-out exercise cannot be met in training, whatever the seeds.
    """
    if family not in FAMILIES:
        raise ValueError(f"family {family!r} is not one of {', '.join(FAMILIES)}")
    if level is not None and level not in LEVELS:
        raise ValueError(f"level {level!r} is not one of 1, 2, 3")
    identity = f"practice/{space}/{family}/{seed}/{index}"
    chosen = Draw(f"{identity}/level").level(level_mix) if level is None else level
    for attempt in integers():
        made = FAMILIES[family].build(Draw(f"{identity}/{attempt}"), chosen)
        if is_held_out(made) == (space is Space.HELDOUT):
            return made, chosen
    raise AssertionError("unreachable")


def substance_hash(exercise: Exercise) -> str:
    """Hex SHA-256 of files, tests and solution: two phrasings of one exercise are the same."""
    checks = [check.source() for check in exercise.checks]
    what = [dict(exercise.files), checks, list(exercise.demonstration.commands)]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def is_held_out(exercise: Exercise) -> bool:
    return int(substance_hash(exercise)[:8], 16) % HELDOUT_BUCKETS == 0
