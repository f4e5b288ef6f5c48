"""The pytest session that every grade is a fork of.

pytest is configured, its plugins registered and its session started once, in the server; the hook that opens
collection does not return there. Each child returns from it, locked in, and goes through pytest's own
collection, run and report.

Two canary tests are slipped in among the task's tests, under names drawn for this grade: one must pass, one
must fail. They live in the same module as the real tests, so code that flips outcomes by file or wholesale
flips them too.

Before the first test runs, the tests are put away if they allow it; before the report is written, every other
process of the grade is killed, so that no program which the tests started can touch the report; after it, the
seal is looked at.
"""

import contextlib
import gc
import io
import linecache
import os
import sys
import tempfile
from collections.abc import Callable, Generator
from typing import Any, NoReturn

import pytest

from t1core.verifier.forked.root import COMMANDS
from t1core.verifier.forked.script import run_script
from t1core.verifier.forked.seal import Seal, record
from t1core.verifier.forked.supervise import PUT_AWAY

SIGKILL = 9
# Where a child finds the host's files for the report and the seal, and the way to its supervisor and back.
REPORT_FD, NOTES_FD, REQUEST_FD, REPLY_FD = 200, 201, 202, 203
TEST_FILE = "/tests/test_outputs.py"
EMPTY_INI = "/opt/t1/pytest.ini"
ENVIRONMENT = {
    "PATH": "/opt/t1/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/bash",
    "TERM": "dumb",
    "LANG": "C.UTF-8",
    "TMPDIR": "/var/tmp",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# In a box over an overlay /usr/local is the agent's: the system comes before it.
OVER_IMAGE = {"PATH": "/opt/t1/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"}
_UNNEEDED = (
    "cacheprovider",
    "junitxml",
    "pastebin",
    "stepwise",
    "setuponly",
    "setupplan",
    "faulthandler",
    "doctest",
)


def arguments(*, report: str, test_file: str, root: str, ini: str) -> list[str]:
    """pytest's command line; nothing of the agent's can add to it."""
    out = ["-p", "ctrf.main", "--ctrf", report, "-c", ini, f"--rootdir={root}", f"--confcutdir={root}"]
    for plugin in _UNNEEDED:
        out += ["-p", f"no:{plugin}"]
    return [*out, "--tb=native", "-rA", test_file]


class Door:
    """Holds the server at collection; lets children through, and ends them once their report is written."""

    def __init__(self, serve: Callable[[], Any]) -> None:
        self._serve = serve
        self._order: Any = None
        self._seal: Seal | None = None
        self._session: pytest.Session | None = None
        self._canaries: tuple[str, str] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """The server stays in here for its whole life."""
        capture = session.config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # its files would be shared by all children
        gc.collect()
        gc.disable()
        gc.freeze()
        self._seal = Seal(session.config)
        order = self._order = self._serve()
        gc.enable()
        os.environ.clear()
        os.environ.update(order.env | ENVIRONMENT | (OVER_IMAGE if order.is_overlay else {}))
        tempfile.tempdir = None  # remembers the server's
        if order.is_script:
            run_script(
                report_fd=REPORT_FD, notes_fd=NOTES_FD, environment=dict(os.environ), commands=COMMANDS
            )
            os._exit(0)
        capture.start_global_capturing()
        capture.suspend_global_capture()
        session.config._ctrf._report.start()
        self._session, self._canaries = session, (order.passing, order.failing)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Slip the canaries in; the failing one last, when all of the agent's code has been imported."""
        module = items[0].getparent(pytest.Module) if items else None
        if module is None or self._canaries is None:
            return
        passing, failing = self._canaries
        good = pytest.Function.from_parent(module, name=passing, callobj=_must_pass)
        items.insert(hash(passing) % (len(items) + 1), good)
        items.append(pytest.Function.from_parent(module, name=failing, callobj=_must_fail))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Put the tests away, so that no program they start can read them; tracebacks keep their source lines."""
        assert self._seal is not None
        self._seal.watch(session.items)
        if self._order.puts_tests_away:
            lines = linecache.getlines(TEST_FILE)
            # Without a time of change it is not looked for on disk again.
            linecache.cache[TEST_FILE] = (sum(map(len, lines)), None, lines, TEST_FILE)
            os.write(REQUEST_FD, PUT_AWAY)
            os.read(REPLY_FD, 1)

    @pytest.hookimpl(
        wrapper=True, tryfirst=True
    )  # the report's own hook comes first among those that wrap nothing
    def pytest_sessionfinish(self) -> Generator[None]:
        """As the namespace's first process we can end all others at once, before the report is written, and see each of
        them end: one that is killed in the middle of a write still finishes it.
        """
        assert os.getpid() == 1
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(-1, SIGKILL)
            while True:
                os.waitpid(-1, 0)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_unconfigure(self) -> None:
        """The report is written; what pytest would still tidy up ends with the process."""
        assert self._session is not None and self._seal is not None
        record(self._seal.findings(self._order.directories), fd=NOTES_FD)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(self._session.exitstatus))


def _must_pass() -> None:
    assert sum(range(4)) == 6


def _must_fail() -> None:
    assert sum(range(4)) == 7


def wait_at_the_door(serve: Callable[[], Any]) -> NoReturn:
    """Start the session; `serve` returns in locked-in children only."""
    argv = arguments(report=f"/proc/self/fd/{REPORT_FD}", test_file=TEST_FILE, root="/tests", ini=EMPTY_INI)
    code = pytest.main(argv, plugins=[Door(serve)])
    os._exit(int(code))  # only when pytest refused to start


def warm_up(directory: str) -> None:
    """Run a whole session once, so that a child finds everything imported and every cache filled."""
    test_file, ini = os.path.join(directory, "test_warm.py"), os.path.join(directory, "pytest.ini")
    with open(ini, "w") as file:
        file.write("[pytest]\n")
    with open(test_file, "w") as file:
        file.write(
            "import csv, hashlib, json, os, pathlib, re, shutil, sqlite3, stat, subprocess, tempfile\n"
            "def test_good():\n    assert os.path.exists('/')\n"
            "def test_bad():\n    text = 'a'\n    assert text == 'b', text\n"
            "def test_missing():\n    assert pathlib.Path('/nowhere').read_text() == ''\n"
        )
    report = os.path.join(directory, "warm.json")
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(arguments(report=report, test_file=test_file, root=directory, ini=ini))
    sys.modules.pop("test_warm", None)
    sys.path[:] = [path for path in sys.path if path != directory]
