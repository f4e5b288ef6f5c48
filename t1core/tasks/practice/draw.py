"""A draw: the seeded choices of one exercise. Words never repeat within it, so every name is unambiguous."""

import random
from collections.abc import Sequence

from t1core.tasks.words import EXTENSIONS, WORDS


class Draw:
    """Choices from one seed text; the same text gives the same exercise everywhere."""

    def __init__(self, seed: str):
        self._random = random.Random(seed)
        self._unused = list(WORDS)
        self._random.shuffle(self._unused)

    def word(self) -> str:
        """A word not yet used in this exercise."""
        return self._unused.pop()

    def words(self, number: int) -> list[str]:
        return [self.word() for _ in range(number)]

    def name(self, extension: str | None = None) -> str:
        """A file name not yet used."""
        return f"{self.word()}.{extension or self.extension()}"

    def names(self, number: int, *, extension: str | None = None) -> list[str]:
        return [self.name(extension) for _ in range(number)]

    def extension(self) -> str:
        return self._random.choice(EXTENSIONS)

    def extensions(self, number: int) -> list[str]:
        """Different ones."""
        return self._random.sample(EXTENSIONS, number)

    def number(self, low: int, high: int) -> int:
        """An integer in low..high, both included."""
        return self._random.randint(low, high)

    def numbers(self, number: int, *, low: int, high: int) -> list[int]:
        """Different integers in low..high."""
        return self._random.sample(range(low, high + 1), number)

    def level(self, mix: Sequence[float]) -> int:
        """1, 2 or 3 with the weights of `mix`."""
        return self._random.choices((1, 2, 3), weights=mix)[0]

    def shuffled(self, items: Sequence[str]) -> list[str]:
        return self._random.sample(list(items), len(items))

    def phrase(self, *phrasings: str) -> str:
        """One way of saying it, with a capital first letter: so none may begin with a file name."""
        text = self._random.choice(phrasings)
        return text[0].upper() + text[1:]


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def text_of(lines: Sequence[str]) -> str:
    """A file's text, newline-terminated."""
    return "".join(line + "\n" for line in lines)
