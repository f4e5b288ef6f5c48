"""Building an exercise from a recipe: every part keeps its words, in a directory of its own, so that no names clash.

What a demand expects of the files that a part leaves is found by running the part's reference solution: it is our own
generator's, so it runs here, without a box. The gate runs the whole in boxes.
"""

import os
import re
import subprocess
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path

from t1core.pools.synthesis.recipe import Chain, Constrain, Nest, Recipe, Seed
from t1core.tasks.practice import checks
from t1core.tasks.practice.checks import Check
from t1core.tasks.practice.exercise import Exercise, OracleTurn, silent
from t1core.tasks.practice.families import Space, exercise

_SOLUTION_TIMEOUT_S = 30.0
_ROOTED = re.compile(r'(ROOT / |lines\()"')  # the two ways in which a practice check names a path


def build(recipe: Recipe) -> Exercise:
    """The exercise of a recipe; the same one each time. ValueError for a family or level that there is not."""
    match recipe:
        case Seed():
            made, _ = exercise(
                recipe.family,
                seed=recipe.seed,
                index=recipe.index,
                space=Space(recipe.space),
                level=recipe.level,
            )
            return made
        case Nest():
            return _nested(build(recipe.part), folder=recipe.folder)
        case Chain():
            return _chained(
                {name: build(part) for name, part in zip(recipe.folders, recipe.parts, strict=True)}
            )
        case Constrain():
            return _constrained(build(recipe.part), recipe)


def _nested(part: Exercise, *, folder: str) -> Exercise:
    """The instruction stands in a note beside the directory, where no pattern of the part's commands meets it."""
    inside, note = _within(part, folder), f"{folder}.todo"
    text = part.instruction + "\n"
    look = OracleTurn(commands=(f"cat {note}",), outputs=(text,))
    return Exercise(
        f"Read {note} and do what it says in {_place(part, folder)}.",
        {note: text, **inside.files},
        inside.checks,
        (look, *inside.turns),
    )


def _chained(parts: Mapping[str, Exercise]) -> Exercise:
    inside = [_within(part, folder) for folder, part in parts.items()]
    steps = [
        f"{number}. In {_place(part, folder)}: {_indented(part.instruction)}"
        for number, (folder, part) in enumerate(parts.items(), start=1)
    ]
    return Exercise(
        "\n".join(["Do the following.", *steps]),
        {name: text for part in inside for name, text in part.files.items()},
        tuple(check for part in inside for check in part.checks),
        tuple(turn for part in inside for turn in part.turns),
    )


def _constrained(part: Exercise, recipe: Constrain) -> Exercise:
    folder, file = recipe.folder, recipe.file
    inside = _within(part, folder)
    left = files_left(inside)
    paths = sorted(left)  # all ASCII: the order of bytes
    match recipe.demand:
        case "listed":
            told = f"list the paths of all files below {folder} in {file}, one a line, in the order of bytes"
            command = f"find {folder} -type f | LC_ALL=C sort > {file}"
            wanted = _written(file, "".join(f"{path}\n" for path in paths))
        case "joined":
            told = f"put what all files below {folder} hold into {file}, by path in the order of bytes"
            command = f"find {folder} -type f | LC_ALL=C sort | xargs cat > {file}"
            wanted = _written(file, "".join(left[path] for path in paths))
        case "counted":
            told = f"write to {file} how many lines all files below {folder} have together"
            command = f"find {folder} -type f | xargs cat | wc -l > {file}"
            wanted = _written(file, f"{sum(len(text.splitlines()) for text in left.values())}\n")
        case "sealed":
            told = f"make all files below {folder} read-only"
            command = f"find {folder} -type f | xargs chmod a-w"
            sealed = {check.name for check in inside.checks}
            wanted = [check for check in map(checks.is_read_only, paths) if check.name not in sealed]
    return Exercise(
        f"1. In {_place(part, folder)}: {_indented(part.instruction)}\n2. After that, {told}.",
        inside.files,
        (*inside.checks, *wanted),
        (*inside.turns, silent(command)),
    )


def _written(file: str, text: str) -> list[Check]:
    return [
        checks.is_file(file),
        checks.has_num_lines(file, number=len(text.splitlines())),
        checks.holds(file, text=text),
    ]


def _place(part: Exercise, folder: str) -> str:
    return f"the directory {folder}" if part.files else f"the new directory {folder}"


def _indented(text: str) -> str:
    return textwrap.indent(text, "   ").lstrip()


def _within(part: Exercise, folder: str) -> Exercise:
    """The same exercise in a directory: files, checks and commands; its instruction is the caller's to place."""
    enter = (f"cd {folder}",) if part.files else (f"mkdir {folder}", f"cd {folder}")
    wanted = tuple(
        Check(
            f"{folder}_{check.name}",
            tuple(_ROOTED.sub(rf'\g<1>"{folder}/', statement) for statement in check.statements),
        )
        for check in part.checks
    )
    return Exercise(
        part.instruction,
        {f"{folder}/{name}": text for name, text in part.files.items()},
        wanted,
        (silent(*enter), *part.turns, silent("cd ..")),
    )


def files_left(made: Exercise) -> dict[str, str]:
    """Path -> text of every file after the reference solution has run in a scratch directory. AssertionError where it
    fails."""
    with tempfile.TemporaryDirectory(prefix="t1-compose-") as scratch:
        root = Path(scratch) / "app"
        root.mkdir()
        for name, text in made.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-s"],
            input="\n".join(made.demonstration.commands) + "\n",
            text=True, cwd=root, capture_output=True, timeout=_SOLUTION_TIMEOUT_S, check=False,
            env={"PATH": os.defpath + ":/usr/local/bin", "HOME": str(root)},
        )  # fmt: skip
        assert done.returncode == 0, f"the reference solution fails: {done.stderr}"
        return {
            path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()
        }
