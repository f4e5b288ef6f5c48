"""SGLang versions: which are accepted, which were run, and what changed between them that the client must
know.
"""

import re
from dataclasses import dataclass

OLDEST = (0, 5, 17)
NEWEST = (0, 5, 23)
RUN = ((0, 5, 17), (0, 5, 23))
"""Versions this client's contract tests have run against, 0.5.17 on a GPU (docs/SGLANG.md says with what result) and
0.5.23 on a CPU; others between OLDEST and NEWEST start with a warning.
"""


@dataclass(frozen=True)
class SGLangVersion:
    """A parsed version and its contract."""

    number: tuple[int, int, int]

    def __str__(self) -> str:
        return ".".join(map(str, self.number))

    @property
    def has_weight_sessions(self) -> bool:
        """From 0.5.21 tensor updates run between begin_weight_update and end_weight_update."""
        return self.number >= (0, 5, 21)

    @property
    def has_version_spans(self) -> bool:
        """From 0.5.19 a reply says which output tokens came from which weight version."""
        return self.number >= (0, 5, 19)

    @property
    def was_run(self) -> bool:
        return self.number in RUN


def parse_version(text: str) -> SGLangVersion:
    """`0.5.23`, `0.5.12.post1` -> SGLangVersion. Raises ValueError outside the supported range."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError(f"sglang version {text!r} is not of the form 0.5.23")
    number = (int(match[1]), int(match[2]), int(match[3]))
    if not OLDEST <= number <= NEWEST:
        oldest, newest = (".".join(map(str, v)) for v in (OLDEST, NEWEST))
        raise ValueError(
            f"sglang {text} is not supported: its update and capture contract is known for {oldest} to "
            f"{newest}; install sglang=={newest} in the engine's environment"
        )
    return SGLangVersion(number)
