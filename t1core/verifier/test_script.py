"""Telling the pool's standard `tests/test.sh` from anything else.

The standard script runs pytest once over /tests/test_outputs.py with a CTRF report, then writes reward.txt
from its exit code. The pre-imported grader does that itself; any other script is run as it stands.
"""

import re
import shlex
from pathlib import Path

__test__ = False

_IGNORED_LINES = re.compile(
    r"set -\w+|set \+\w+|mkdir -p /logs/verifier|cd /\w+|exit (0|\$\w+|\$\?)|\w+=\$\?"
    r"|\[+ [\"$\w? =!-]+ \]+|fi"
    r"|echo \"?[01](\.0)?\"? ?> ?/logs/verifier/reward\.txt"
)
_TEST_FILE, _REPORT = "/tests/test_outputs.py", "/logs/verifier/ctrf.json"
_PLAIN_OPTIONS = re.compile(r"-r\w+|-q+|-v+|--tb=\w+|--ctrf(=.*)?|-p|no:cacheprovider")


def is_standard(text: str) -> bool:
    """Whether running `pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py` is all the script
    does."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    parts = [
        re.sub(r"^(if|then|else)\b", "", part.strip()).strip()
        for part in re.split(r"[;\n]", "\n".join(lines))
    ]
    calls = [part for part in parts if part and not _IGNORED_LINES.fullmatch(part)]
    if len(calls) != 1:
        return False
    try:
        words = shlex.split(calls[0])
    except ValueError:
        return False
    if words[:3] == ["python3", "-m", "pytest"]:
        words = words[2:]
    if not words or words[0] != "pytest":
        return False
    rest = words[1:]
    return (
        _TEST_FILE in rest
        and asks_for_report(text)
        and all(word in (_TEST_FILE, _REPORT) or _PLAIN_OPTIONS.fullmatch(word) for word in rest)
    )


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
