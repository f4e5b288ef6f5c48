"""Broken solutions: small faults put into a reference solution, and into the files that it leaves.

A fault in the script is what an agent might do wrong; one in a file is language-free, and no syntax error. Tests that
pass a broken solution do not look at what was broken. Which faults are chosen is a function of the seed.
"""

import itertools
import random
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

# Lines whose loss only breaks the syntax, or changes nothing.
_STRUCTURE = re.compile(
    r"\s*(#.*|set [-+]\w+.*|(fi|done|else|then|do|esac|\}|\{|\)|EOF|[A-Z_]*EOF)?|(if|for|while|case|elif)\b.*)\s*"
)
_NUMBER = re.compile(r"(?<![\w.-])\d+(?![\w.])")
_QUOTED = re.compile(r"(['\"])([^'\"\n$`\\]{2,})\1")
_OPTION = re.compile(r"(?<=\s)-{1,2}[A-Za-z][\w-]*(?=\s)")
_APPEND, _REPLACE = re.compile(r"(?<![>&\d])>>(?!>)"), re.compile(r"(?<![>&\d=-])>(?![>&(=])")
_SWAPS = (
    ("head", "tail"), ("tail", "head"), ("&&", "||"), ("==", "!="), ("-lt", "-ge"), ("-gt", "-le"), ("+", "-"),
    ("sort", "sort -r"), ("asc", "desc"), ("upper", "lower"), ("lower", "upper"), ("min", "max"), ("max", "min"),
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A broken solution: what is wrong with it, the script that stands for solve.sh, and what is run after it."""

    fault: str
    script: str
    after: str = ""


def mutants_of(script: str, *, files: Sequence[str] = (), number: int, seed: int) -> list[Mutant]:
    """At most `number` mutants, kinds of faults taking turns; `files`: paths in the box that the solution wrote."""
    draw = random.Random(f"mutants/{seed}/{script}")
    kinds = [[*kind] for kind in (*_in_script(script), *_in_files(script, files))]
    for kind in kinds:
        draw.shuffle(kind)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*kinds))
    return [mutant for mutant in turns if mutant is not None][:number]


def _in_script(script: str) -> Iterator[Iterable[Mutant]]:
    lines = script.split("\n")
    at_work = [place for place, line in enumerate(lines) if not _STRUCTURE.fullmatch(line)]

    def changed(place: int, line: str, what: str) -> Mutant:
        return Mutant(f"line {place + 1}: {what}", "\n".join([*lines[:place], line, *lines[place + 1 :]]))

    def at_matches(
        pattern: re.Pattern[str], change: Callable[[re.Match[str]], str], what: str
    ) -> Iterator[Mutant]:
        for place in at_work:
            for match in pattern.finditer(lines[place]):
                line = lines[place][: match.start()] + change(match) + lines[place][match.end() :]
                yield changed(place, line, f"{what}: {line.strip()[:80]}")

    def swapped() -> Iterator[Mutant]:
        for place, (old, new) in itertools.product(at_work, _SWAPS):
            pattern = re.compile(
                rf"(?<![\w-]){re.escape(old)}(?!\w)" if old[0].isalpha() else rf"\s{re.escape(old)}\s"
            )
            if match := pattern.search(lines[place]):
                put = new if old[0].isalpha() else f" {new} "
                line = lines[place][: match.start()] + put + lines[place][match.end() :]
                yield changed(place, line, f"{old} for {new}: {line.strip()[:80]}")

    yield (changed(place, ":", f"left out: {lines[place].strip()[:80]}") for place in at_work)
    yield at_matches(_NUMBER, lambda match: str(int(match[0]) + 1), "one more")
    yield at_matches(_QUOTED, lambda match: f"{match[1]}{match[2][:-1]}{match[1]}", "a letter less")
    yield at_matches(_APPEND, lambda match: ">", "written over")
    yield at_matches(_REPLACE, lambda match: ">>", "appended")
    yield at_matches(_OPTION, lambda match: "", "an option less")
    yield swapped()
    yield (
        Mutant(f"stops after line {place}", "\n".join(lines[:place]) + "\n")
        for place in at_work[1:]
        if len(at_work) > 2
    )


def _in_files(script: str, files: Sequence[str]) -> Iterator[Iterable[Mutant]]:
    faults = (
        ("is gone", "rm -rf {}"),
        ("is empty", "if [ -f {0} ]; then : > {0}; fi"),
        ("has a line more", "if [ -f {0} ]; then echo 'one line more' >> {0}; fi"),
        ("lacks its last line", "if [ -f {0} ]; then sed -i '$ d' {0}; fi"),
        ("has its first letter doubled", "if [ -f {0} ]; then sed -i '1 s/^./&&/' {0}; fi"),
    )
    for what, command in faults:
        yield [Mutant(f"{path} {what}", script, after=command.format(shlex.quote(path))) for path in files]
