"""Looks: commands that only read, with the text bash prints for them. Each returns (command, output)."""

from collections.abc import Mapping, Sequence

from t1core.tasks.practice.exercise import OracleTurn

Look = tuple[str, str]


def cat(files: Mapping[str, str], *, names: Sequence[str]) -> Look:
    return "cat " + " ".join(names), "".join(files[name] for name in names)


def holders(files: Mapping[str, str], *, word: str, extension: str) -> Look:
    """Names of the files that contain the word, in glob order."""
    names = sorted(name for name, text in files.items() if name.endswith("." + extension) and word in text)
    return f"grep -l {word} *.{extension}", "".join(name + "\n" for name in names)


def contents(files: Mapping[str, str], *, extension: str) -> Look:
    """Every line of the files with that ending, after its file's name: grep omits that for a single file."""
    names = sorted(name for name in files if name.endswith("." + extension))
    assert len(names) > 1
    lines = [f"{name}:{line}\n" for name in names for line in files[name].splitlines()]
    return f"grep . *.{extension}", "".join(lines)


def line_counts(files: Mapping[str, str], *, names: Sequence[str], pattern: str) -> Look:
    """Non-empty lines of each of at least two files; the shell expands `pattern` to `names` in this order."""
    assert len(names) > 1
    return f"grep -c . {pattern}", "".join(f"{name}:{len(files[name].splitlines())}\n" for name in names)


def turn(*looks: Look) -> OracleTurn:
    """One turn made of looks."""
    return OracleTurn(commands=tuple(look[0] for look in looks), outputs=tuple(look[1] for look in looks))
