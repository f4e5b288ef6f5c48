"""The corpus: an endless stream of solved exercises for the supervised start.

They come from the trained families only and, by construction, never from the held-out side (see
`families.exercise`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from t1core.tasks.practice.draw import Draw
from t1core.tasks.practice.exercise import Demonstration
from t1core.tasks.practice.families import TRAINED, Space, exercise

# Harder on average than the pool: long lists of names are what teaches to copy.
CORPUS_LEVELS = (0.4, 0.35, 0.25)


@dataclass(frozen=True)
class Example:
    """A solved exercise: what the agent is asked, and the turns that do it."""

    family: str
    level: int
    instruction: str
    demonstration: Demonstration
    num_tests: int


def demonstration_stream(
    seed: int,
    *,
    families: Sequence[str] = TRAINED,
    level_mix: Sequence[float] = CORPUS_LEVELS,
    start: int = 0,
) -> Iterator[Example]:
    """Yield examples from number `start` without end; each depends only on its number and the arguments.

    Families take turns in an order shuffled anew each round, so `len(families)` examples cover all of them.
    `level_mix` weighs levels 1, 2 and 3.
    """
    unknown = [name for name in families if name not in TRAINED]
    if unknown or not families:
        raise ValueError(f"families {unknown or families}: give some of {', '.join(TRAINED)}")
    index = start
    while True:
        turn, place = divmod(index, len(families))
        family = Draw(f"corpus/{seed}/{turn}").shuffled(families)[place]
        made, level = exercise(family, seed=seed, index=turn, space=Space.CORPUS, level_mix=level_mix)
        yield Example(
            family=family,
            level=level,
            instruction=made.instruction,
            demonstration=made.demonstration,
            num_tests=len(made.checks),
        )
        index += 1
