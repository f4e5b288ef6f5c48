"""An exercise: one practice task as data, before it is written as files. Its oracle comes with it.

The oracle is a list of turns, each with the exact text that bash prints for its commands, so supervised
dialogues can be written by the thousand without opening a box. `check.py` proves that bash really prints it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from t1core.tasks.practice.checks import Check


@dataclass(frozen=True)
class OracleTurn:
    """Commands typed in one turn and what bash prints for each (stdout and stderr, "" when silent)."""

    commands: tuple[str, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.commands) == len(self.outputs), "every command needs its output"

    @property
    def output(self) -> str:
        """What the whole turn prints."""
        return "".join(self.outputs)


@dataclass(frozen=True)
class Demonstration:
    """The reference solution, turn by turn."""

    turns: tuple[OracleTurn, ...]

    @property
    def commands(self) -> tuple[str, ...]:
        """Every command in order: the lines of solve.sh."""
        return tuple(command for turn in self.turns for command in turn.commands)

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        """Every command with what it prints, in order."""
        pairs = [zip(turn.commands, turn.outputs, strict=True) for turn in self.turns]
        return tuple(pair for turn in pairs for pair in turn)


@dataclass(frozen=True)
class Exercise:
    """What a family produces: the text the agent gets, the files it finds in /app, the checks, the oracle."""

    instruction: str
    files: Mapping[str, str]
    checks: tuple[Check, ...]
    turns: tuple[OracleTurn, ...]

    @property
    def demonstration(self) -> Demonstration:
        return Demonstration(turns=self.turns)


def silent(*commands: str) -> OracleTurn:
    """A turn whose commands print nothing."""
    return OracleTurn(commands=commands, outputs=("",) * len(commands))
