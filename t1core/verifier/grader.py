"""The grader: a task, a dead box's layer, and what they are worth.

    tests copied and hashed -> a child of the fork server, in fresh namespaces, over the layer read-only ->
    the report, by a descriptor -> counted here, against the names the task expects -> tests hashed again ->
    reward

The agent's code runs beside the tests (they may import or start it), so: no report means 0, never "the exit
code said so"; a canary with the wrong outcome means 0; a broken seal or anything else odd quarantines. What
in-process code can still do, and out-of-process tests prevent, is to change one test's outcome from within (patch
the reporter for chosen tests, or return objects that equal everything). docs/VERIFIER.md has the whole list.
"""

import asyncio
import hashlib
import importlib.metadata
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from t1core.records import Grade, Task, TestStatus
from t1core.sandbox.runtime import ensure_runtime
from t1core.sandbox.sandbox import CUT, Layer
from t1core.sandbox.state import StateBlock, remove_tree
from t1core.tasks.test_script import asks_for_report, can_be_put_away, is_standard
from t1core.verifier.ctrf import Report, parse_report
from t1core.verifier.fork_server import ForkServer, GraderLost, GradeRun
from t1core.verifier.layer_scan import scan_layer
from t1core.verifier.reward import DEFAULT_SCALE, RewardKind, counted_reward, no_reward, uncounted_reward

LOG_TAIL_BYTES = 4000
_TOOL_NAMES = ("PATH", "PYTHON", "PYTEST", "LD_", "BASH_ENV", "ENV", "TMPDIR", "HOME")
# Things that happen to honest work too.
_INNOCENT = ("timeout", "memory", "no-report:no tests", "no-report:timeout", CUT)


class Grader:
    """Grades trials; keeps one fork server. `start` before the first grade, `close` at the end."""

    def __init__(
        self,
        runtime: Path | None = None,
        *,
        max_parallel: int | None = None,
        memory_mb: int = 1024,
        max_processes: int = 64,
        image: Path | None = None,
    ) -> None:
        """Limits of one grade, whose tests may start the agent's code; its time is the task's, and what it
        writes is bounded by `forked.root.SCRATCH_BYTES`.

        `max_parallel` grades run at once, others wait their turn: left out, one a core and 2 at least, since a
        grade is mostly computation. `memory_mb` bounds the data of each process and what all of a grade hold
        together, of which pytest with its plugins takes some 50 MB; the largest process goes when they pass it.
        `max_processes` counts threads too. `image` is the unpacked image that the boxes were opened over.
        """
        if max_parallel is None:
            max_parallel = max(2, len(os.sched_getaffinity(0)))
        for name, value in (("max_parallel", max_parallel), ("max_processes", max_processes)):
            if value < 1:
                raise ValueError(f"Grader: {name} {value} must be at least 1")
        if memory_mb < 128:
            raise ValueError(f"Grader: memory_mb {memory_mb} is less than pytest needs; give it 128 or more")
        self._runtime = runtime or ensure_runtime()
        self._system = image.resolve() if image is not None else Path("/")
        self._memory_mb, self._max_processes = memory_mb, max_processes
        self._turns, self._starting = asyncio.Semaphore(max_parallel), asyncio.Lock()
        self._server: ForkServer | None = None
        self._block: StateBlock | None = None
        self._next_id = 0
        self._plugin_version = importlib.metadata.version("pytest-json-ctrf")

    async def start(self) -> None:
        """Start the fork server. Raises SandboxUnavailable when it cannot make namespaces."""
        assert self._block is None, "already started"
        self._block = StateBlock()
        try:
            await self._living_server()
        except BaseException:
            await self.close()
            raise

    @property
    def server_pid(self) -> int:
        """The fork server's process."""
        assert self._server is not None, "call start() first"
        return self._server.pid

    async def _living_server(self) -> ForkServer:
        assert self._block is not None, "call start() first"
        async with self._starting:
            if self._server is None or self._server.is_lost:
                directory = Path(tempfile.mkdtemp(prefix="server-", dir=self._block.path))
                directory.chmod(0o711)
                server = ForkServer(self._runtime, directory=directory, system=self._system)
                await server.ready()
                self._server = server
            return self._server

    async def close(self) -> None:
        """End the fork server and every grade in progress."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._block is not None:
            self._block.close()
            self._block = None

    async def grade(
        self,
        task: Task,
        layer: Layer,
        *,
        attempt_dir: Path,
        scale: float = DEFAULT_SCALE,
        kind: RewardKind = "dense",
        subtract_nop: bool = False,
    ) -> Grade:
        """Grade what `layer` holds; the report and pytest's output are kept in `attempt_dir`, which must be
        new or empty.

        A failure of ours gives a Grade without a reward (source NONE), never 0. The layer stays as it is: the
        caller closes it. Raises ValueError for a task without tests or a used `attempt_dir`.
        """
        if not task.test_names or not any(place.is_dir() for place in task.tests):
            raise ValueError(
                f"task {task.task_id} ({task.path}): no tests to grade with; add tests/test_outputs.py"
            )
        attempt_dir.mkdir(parents=True, exist_ok=True)
        if any(attempt_dir.iterdir()):
            raise ValueError(f"attempt_dir {attempt_dir} is not empty: every attempt needs one of its own")
        async with self._turns:
            started = time.monotonic()
            # In a thread: a box may leave more files than other trials should wait for.
            scan = await asyncio.to_thread(scan_layer, layer.directories, is_overlay=layer.is_overlay)
            flags = [*layer.flags, *scan.flags]
            try:
                run = await self._run(task, layer, links=scan.links)
            except GraderLost as error:
                grade = _ungraded(task, f"grader-lost:{error}")
            else:
                flags += run.flags
                grade = self._judge(task, run, flags=flags, scale=scale, kind=kind, subtract_nop=subtract_nop)
                (attempt_dir / "ctrf.json").write_bytes(run.report)
                (attempt_dir / "test-stdout.txt").write_bytes(run.log)
            return replace(grade, duration_s=time.monotonic() - started)

    async def _run(self, task: Task, layer: Layer, *, links: Sequence[str]) -> GradeRun:
        server = await self._living_server()
        assert self._block is not None
        self._next_id += 1
        staged = self._block.path / f"grade-{self._next_id}"
        try:
            before = [tree_hash(place) for place in task.tests]
            for place in task.tests:
                shutil.copytree(place, staged / "tests", dirs_exist_ok=True)
            given = tree_hash(staged / "tests")
            _make_readable(staged)
            script_path = staged / "tests" / "test.sh"
            script = script_path.read_text() if script_path.exists() else None
            forked = script is None or is_standard(script)
            canaries = ("test_" + secrets.token_hex(4), "test_" + secrets.token_hex(4))
            run = await server.grade(
                layer,
                tests=staged / "tests",
                mode="pytest" if forked else "script",
                puts_tests_away=forked and can_be_put_away(staged / "tests"),
                env=graded_env(layer.env, task.verifier_env),
                links=links,
                canaries=canaries,
                timeout_s=task.verifier_timeout_s,
                memory_mb=self._memory_mb,
                max_processes=self._max_processes,
            )
            after = [tree_hash(place) for place in task.tests]
            if before != after or given != tree_hash(staged / "tests"):
                run.flags.append("tests-changed")
            return replace(
                run, canaries=canaries if forked else None, wants_report=forked or asks_for_report(script)
            )
        finally:
            remove_tree(staged)

    def _judge(
        self,
        task: Task,
        run: GradeRun,
        *,
        flags: list[str],
        scale: float,
        kind: RewardKind,
        subtract_nop: bool,
    ) -> Grade:
        if run.phase != "ran":
            return _ungraded(task, f"grader-setup:{run.log[-300:].decode(errors='replace').strip()}")
        report = parse_report(run.report, expected=task.test_names, ignored=run.canaries_as(task.test_names))
        if run.timed_out:
            flags.append("timeout")
        if run.passed_memory:
            flags.append("memory")
        if not run.wants_report:
            assert run.declared is not None  # only a script asks for no report
            if not (run.timed_out or (run.passed_memory and run.code != 0)):  # else it came to say nothing
                flags += run.declared.flags
            reward, source = uncounted_reward(kind, declared=run.declared.reward)
            solved = run.declared.reward == 1
            passed = task.num_tests if solved else 0
        elif report.unusable:
            flags.append(f"no-report:{'timeout' if run.timed_out else report.unusable}")
            reward, source = uncounted_reward(kind, declared=None)
            passed, solved = 0, False
        else:
            flags += report.flags
            if run.canaries is not None and run.code != 1:  # one canary fails, so a whole run ends with 1
                flags.append(f"exit-code:{run.code}")
            if run.canaries is not None:
                flags += ("unsealed",) if run.findings is None else run.findings
            trusted = run.canaries is None or self._canaries_hold(report, run.canaries, flags)
            ignored = set(task.nop_passed) if subtract_nop else set()
            counted = [test for test in report.tests if test.name not in ignored]
            passed = sum(test.status is TestStatus.PASSED for test in counted) if trusted else 0
            solved = trusted and report.passed == task.num_tests
            reward, source = counted_reward(kind, passed=passed, total=len(counted), scale=scale)
        return Grade(
            reward=reward,
            source=source,
            passed=passed,
            total=task.num_tests,
            solved=solved,
            tests=report.tests,
            flags=tuple(flags),
            quarantined=any(not flag.startswith(_INNOCENT) for flag in flags),
            cpu_s=run.cpu_s,
            ctrf_version=self._plugin_version,
            stdout_tail=run.log[-LOG_TAIL_BYTES:].decode(errors="replace"),
            declared=float(solved) if run.declared is None else run.declared.reward,
        )

    @staticmethod
    def _canaries_hold(report: Report, canaries: tuple[str, str], flags: list[str]) -> bool:
        by_name = {test.name.rpartition("::")[2]: test.status for test in report.extra}
        found = tuple(by_name.get(name, "absent") for name in canaries)
        if found == (TestStatus.PASSED, TestStatus.FAILED):
            return True
        flags.append(f"canary:{found[0]},{found[1]}")
        return False


def graded_env(layer_env: Mapping[str, str], verifier_env: Mapping[str, str]) -> Mapping[str, str]:
    """What the tests find in their environment beside our own: the box's, and the verifier's over it. Not what would
    change our tools: a search path may lead into the agent's directories."""
    kept = {name: value for name, value in layer_env.items() if not name.startswith(_TOOL_NAMES)}
    return kept | dict(verifier_env)


def tree_hash(directory: Path) -> str:
    """sha256 over names and contents of a tree, links by their target."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        content = (
            os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        )
        name = str(path.relative_to(directory)).encode()
        digest.update(b"%d %d " % (len(name), len(content)) + name + content)
    return digest.hexdigest()


def _make_readable(tree: Path) -> None:
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def _ungraded(task: Task, why: str) -> Grade:
    reward, source = no_reward()
    return Grade(
        reward=reward,
        source=source,
        passed=0,
        total=task.num_tests,
        solved=False,
        tests=(),
        flags=(why,),
        stdout_tail=why,
    )
