"""Telling the usual `tests/test.sh` from anything else.

The usual script installs uv and pytest, runs pytest once over /tests/test_outputs.py, mostly with a CTRF report, and
writes reward.txt from its exit code. The pre-imported grader does all that itself, without a network; any other script
is run as it stands.
"""

import itertools
import re
import shlex
from pathlib import Path

__test__ = False

_IGNORED_LINES = re.compile(
    r"set -\w+( pipefail)?|set \+\w+|mkdir -p /logs/verifier|cd /\w+|exit [01]|exit (\$\w+|\$\?)|\w+=\$\?"
    r"|\[+ [\"$\w?/ =!-]+ \]+|fi|echo \"[^\"$`]*\"|echo '[^']*'"
    r"|echo \"?[01](\.0)?\"? ?> ?/logs/verifier/reward\.txt"
    # What fetches the tools: ours are there already.
    r"|(sudo )?(apt-get|apt)( -\w+)* (update|install)( [\w.+=:-]+)*"
    r"|curl -\w+ https://astral\.sh/uv/[\w.]*/?install\.sh( ?\| ?(sh|bash))?|(source|\.) \"?\$HOME/\.local/bin/env\"?"
    r"|export PATH=\"?\$HOME/\.local/bin:\$PATH\"?"
)
_TEST_FILE, _REPORT = "/tests/test_outputs.py", "/logs/verifier/ctrf.json"
_PLAIN_OPTIONS = re.compile(r"-r\w+|-q+|-v+|--tb=\w+|--ctrf(=.*)?|-p|no:cacheprovider")
_APT = re.compile(r"\bapt(?:-get)?(?: -\w+)* install((?: [\w.+=:-]+)*)")
_FETCHERS = ("curl", "wget", "ca-certificates", "uv", "python3", "python3-pip", "python3-pytest")
_OURS = re.compile(r"(pytest|pytest-json-ctrf)([=<>~!].*)?")
_INSTALLS = re.compile(
    r"(python3? -m )?(uv )?pip3? install((?: -\w+| --[\w-]+)*)((?: [\w.\[\],=<>~!'\"-]+)+)"
)


def is_standard(text: str) -> bool:
    """Whether running pytest over /tests/test_outputs.py is all the script does, apart from fetching pytest."""
    calls = [call for call in _calls(text) if not _INSTALLS.fullmatch(call)]
    if len(calls) != 1 or foreign_packages(text):
        return False
    words = _pytest_words(calls[0])
    return (
        words is not None
        and _TEST_FILE in words
        and (asks_for_report(text) or "--ctrf" not in text)
        and all(word in (_TEST_FILE, _REPORT) or _PLAIN_OPTIONS.fullmatch(word) for word in words)
    )


def foreign_packages(text: str) -> tuple[str, ...]:
    """Packages that the script fetches beside pytest and its reporter. Nothing can be fetched in a grade."""
    found: list[str] = []
    for call in _calls(text):
        if match := _INSTALLS.fullmatch(call):
            found += match[4].split()
        elif call.startswith("uvx ") or call.startswith("uv run "):
            words = call.split()
            found += [after for word, after in itertools.pairwise(words) if word in ("-w", "--with")]
            found += [word.partition("=")[2] for word in words if word.startswith("--with=")]
    return tuple(name for name in (word.strip("\"'") for word in found) if not _OURS.fullmatch(name))


def foreign_programs(text: str) -> tuple[str, ...]:
    """What the script has apt install beside what fetches pytest. Nothing can be fetched in a grade."""
    found = [word for match in _APT.finditer(_joined(text)) for word in match[1].split()]
    return tuple(name for name in found if not name.startswith("-") and name not in _FETCHERS)


def _joined(text: str) -> str:
    joined = re.sub(r"[ \t]*\\[ \t]*\n\s*", " ", text)
    return "\n".join(line for line in joined.splitlines() if not line.lstrip().startswith("#"))


def _calls(text: str) -> list[str]:
    """The script's commands, but for those that do nothing to the outcome."""
    parts = [
        re.sub(r"^(if|then|else)\b", "", part.strip()).strip() for part in re.split(r"[;\n]", _joined(text))
    ]
    return [part for part in parts if part and not _IGNORED_LINES.fullmatch(part)]


def _pytest_words(call: str) -> list[str] | None:
    """pytest's arguments in a call of it, directly, by python or by uv; None for any other call."""
    try:
        words = shlex.split(call)
    except ValueError:
        return None
    if words[:1] == ["uvx"] or words[:2] == ["uv", "run"]:
        at = 1 if words[0] == "uvx" else 2
        while at < len(words) and words[at].startswith("-"):
            at += 2 if words[at] in ("-p", "--python", "-w", "--with", "--from") else 1
        words = words[at:]
    if words[:3] in (["python3", "-m", "pytest"], ["python", "-m", "pytest"]):
        words = words[2:]
    return words[1:] if words and words[0] == "pytest" else None


def can_be_put_away(tests: Path) -> bool:
    """Whether tests can do without their own files once pytest has read them: nothing lies beside test_outputs.py
    and test.sh, and the tests never name their place."""
    if {path.name for path in tests.iterdir()} - {"test_outputs.py", "test.sh"}:
        return False
    return (
        re.search(r"/tests(?![\w.-])|__file__|\binspect\b", (tests / "test_outputs.py").read_text()) is None
    )


def asks_for_report(text: str) -> bool:
    """Whether the script wants a CTRF report where we look for it."""
    return re.search(r"--ctrf[= ]\"?" + re.escape(_REPORT), text) is not None
