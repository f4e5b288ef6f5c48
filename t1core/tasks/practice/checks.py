"""A check: one test function of a practice task, as source text.

Each check is false on the untouched workspace; where something must be left alone, the check also asks that
the work has begun. Tests read the agent's files and never import them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PREAMBLE = '''"""Tests of one practice task. T1_APP_ROOT moves the workspace for checks outside a box."""

import os
from pathlib import Path

ROOT = Path(os.environ.get("T1_APP_ROOT", "/app"))


def lines(name):
    path = ROOT / name
    assert path.is_file(), f"{name} is not a file"
    assert path.stat().st_size <= 65536, f"{name} is too big"
    return path.read_text().splitlines()
'''


@dataclass(frozen=True)
class Check:
    """One test: `test_<name>` with these statements."""

    name: str
    statements: tuple[str, ...]

    def source(self) -> str:
        return f"def test_{self.name}():\n" + "".join(f"    {statement}\n" for statement in self.statements)


def test_module(checks: Sequence[Check]) -> str:
    """Source of test_outputs.py."""
    names = [check.name for check in checks]
    assert len(set(names)) == len(names), f"two checks share a name: {names}"
    return "\n\n".join([PREAMBLE, *(check.source() for check in checks)])


test_module.__test__ = False  # pytest would collect it by its name


def is_folder(path: str) -> Check:
    return Check(f"{_slug(path)}_is_a_directory", (f"assert (ROOT / {_quoted(path)}).is_dir()",))


def is_file(path: str) -> Check:
    return Check(f"{_slug(path)}_exists", (f"assert (ROOT / {_quoted(path)}).is_file()",))


def is_empty(path: str) -> Check:
    return Check(f"{_slug(path)}_is_empty", (f"assert lines({_quoted(path)}) == []",))


def holds(path: str, *, text: str) -> Check:
    """The file's lines are exactly those of `text`."""
    return Check(
        f"{_slug(path)}_content", (f"assert lines({_quoted(path)}) == {_listed(text.splitlines())}",)
    )


def has_line(path: str, *, number: int, text: str) -> Check:
    """Line `number`, from 1, is `text`."""
    got = f"lines({_quoted(path)})[{number - 1}:{number}]"
    return Check(f"{_slug(path)}_line_{number}", (f"assert {got} == [{_quoted(text)}]",))


def has_num_lines(path: str, *, number: int) -> Check:
    return Check(f"{_slug(path)}_length", (f"assert len(lines({_quoted(path)})) == {number}",))


def begins(path: str, *, text: str) -> Check:
    """The earlier lines still stand first, and something was added after them."""
    old = text.splitlines()
    return Check(
        f"{_slug(path)}_keeps_its_start",
        (
            f"got = lines({_quoted(path)})",
            f"assert got[:{len(old)}] == {_listed(old)}",
            f"assert len(got) > {len(old)}",
        ),
    )


def has_word(path: str, *, number: int, text: str) -> Check:
    """Word `number` of the file, from 1, is `text`."""
    got = f'" ".join(lines({_quoted(path)})).split()[{number - 1}:{number}]'
    return Check(f"{_slug(path)}_word_{number}", (f"assert {got} == [{_quoted(text)}]",))


def is_gone(path: str) -> Check:
    return Check(f"{_slug(path)}_is_gone", (f"assert not (ROOT / {_quoted(path)}).exists()",))


def is_moved(path: str, *, to: str) -> Check:
    """`path` is no more and `to` exists: deleting alone does not count, nor does copying."""
    return Check(
        f"{_slug(path)}_moved",
        (
            f"assert (ROOT / {_quoted(to)}).is_file()",
            f"assert not (ROOT / {_quoted(path)}).exists()",
        ),
    )


def is_kept(path: str, *, text: str, once: str) -> Check:
    """`path` is as it was, counted only when the statement `once` about the work holds."""
    return Check(
        f"{_slug(path)}_is_kept",
        (f"assert {once}", f"assert lines({_quoted(path)}) == {_listed(text.splitlines())}"),
    )


def is_executable(path: str) -> Check:
    return Check(
        f"{_slug(path)}_is_executable", (f"assert (ROOT / {_quoted(path)}).stat().st_mode & 0o111 == 0o111",)
    )


def is_read_only(path: str) -> Check:
    return Check(
        f"{_slug(path)}_is_read_only", (f"assert (ROOT / {_quoted(path)}).stat().st_mode & 0o222 == 0",)
    )


def exists(path: str) -> str:
    """The statement that `path` exists, for `is_kept`."""
    return f"(ROOT / {_quoted(path)}).exists()"


def _slug(path: str) -> str:
    return path.replace("/", "_").replace(".", "_")


def _quoted(text: str) -> str:
    assert '"' not in text and "\\" not in text and "\n" not in text
    return f'"{text}"'


def _listed(texts: Sequence[str]) -> str:
    return "[" + ", ".join(_quoted(text) for text in texts) + "]"
