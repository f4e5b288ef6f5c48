"""Grading with real pytest in real namespaces: right, wrong, partial and broken work."""

import asyncio
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from t1core.records import RewardSource, TestStatus
from t1core.sandbox.sandbox import BoxSpec
from t1core.verifier import fork_server
from t1core.verifier.grader import Grader
from tests.sandbox.boxes import host_processes, processes_as
from tests.verifier.trials import RIGHT, TEST_NAMES, TEST_OUTPUTS, WRONG, make_task, with_bench

PARTIAL = "printf 'def add(a, b): return a + b' > /app/solution.py"


async def untouched(bench):
    """The layer of a box in which nothing happened."""
    return await (await bench.sandbox.open(BoxSpec("trial", None))).snapshot()


def test_right_partial_and_empty_work_get_what_they_are_worth(tmp_path):
    task = make_task(tmp_path / "task")

    async def run(bench):
        right = await bench.grade(task, RIGHT)
        assert (right.reward, right.source, right.passed, right.total) == (5 / 20, RewardSource.CTRF, 5, 5)
        assert right.solved
        assert right.flags == ()
        assert [test.name for test in right.tests] == list(TEST_NAMES)
        partial = await bench.grade(task, PARTIAL)
        assert (partial.reward, partial.passed, partial.solved) == (3 / 20, 3, False)
        assert partial.tests[2].status is TestStatus.FAILED
        assert "has no attribute 'mul'" in partial.tests[2].message
        empty = await bench.grade(task, "true")
        assert (empty.reward, empty.source, empty.passed) == (0.0, RewardSource.CTRF, 0)
        assert empty.flags == ()
        assert empty.cpu_s > 0

    with_bench(tmp_path, run)


def test_reward_kinds_and_nop_subtraction(tmp_path):
    task = make_task(tmp_path / "task", nop_passed=TEST_NAMES[:1])

    async def run(bench):
        assert (await bench.grade(task, PARTIAL, kind="binary")).reward == 0.0
        assert (await bench.grade(task, PARTIAL, kind="ratio")).reward == pytest.approx(0.4 * 3 / 5)
        assert (await bench.grade(task, PARTIAL, subtract_nop=True)).reward == 2 / 20
        assert (await bench.grade(task, RIGHT, kind="ratio")).reward == 1.0

    with_bench(tmp_path, run)


def test_the_report_and_the_output_are_kept_and_a_used_directory_is_refused(tmp_path):
    task = make_task(tmp_path / "task")
    attempt = tmp_path / "attempt"

    async def run(bench):
        layer = await untouched(bench)
        await bench.grader.grade(task, layer, attempt_dir=attempt)
        assert json.loads((attempt / "ctrf.json").read_bytes())["results"]["tool"]["name"] == "pytest"
        assert "ModuleNotFoundError" in (attempt / "test-stdout.txt").read_text()
        with pytest.raises(ValueError, match="not empty"):
            await bench.grader.grade(task, layer, attempt_dir=attempt)
        layer.close()

    with_bench(tmp_path, run)


def test_tests_that_write_do_not_change_the_layer(tmp_path):
    tests = (
        "import pathlib\ndef test_a():\n"
        "    for path in ('/app/a', '/tmp/b'):\n"
        "        assert not pathlib.Path(path).exists(); pathlib.Path(path).write_text('x')\n"
    )
    task = make_task(tmp_path / "task", tests=tests, test_names=("test_outputs.py::test_a",))

    async def run(bench):
        layer = await untouched(bench)
        for i in range(2):
            grade = await bench.grader.grade(task, layer, attempt_dir=tmp_path / f"attempt{i}")
            assert grade.solved, grade.stdout_tail
        assert list(layer.directories["/app"].iterdir()) == []
        layer.close()

    with_bench(tmp_path, run)


def test_tests_see_a_closed_world(tmp_path, monkeypatch):
    tests = (
        "import os, socket, subprocess\n"
        "def test_no_network():\n"
        "    assert [name for _, name in socket.if_nameindex()] == ['lo']\n"
        "def test_no_environment():\n    assert 'HOST_TOKEN' not in os.environ\n"
        "def test_own_root():\n    assert os.getuid() == 0 and not os.path.exists('/home')\n"
        "def test_programs_run():\n"
        "    assert subprocess.check_output(['bash', '-c', 'id -un; pwd'], text=True) == 'root\\n/app\\n'\n"
        "def test_read_only():\n"
        "    for path in ('/tests/x', '/usr/x', '/etc/x', '/opt/t1/x'):\n"
        "        try: open(path, 'w')\n"
        "        except OSError: continue\n"
        "        assert False, path\n"
    )
    names = ("no_network", "no_environment", "own_root", "programs_run", "read_only")
    task = make_task(
        tmp_path / "t", tests=tests, test_names=tuple(f"test_outputs.py::test_{n}" for n in names)
    )

    async def run(bench):
        grade = await bench.grade(task, "true")
        assert grade.passed == 5, grade.stdout_tail

    monkeypatch.setenv("HOST_TOKEN", "secret")
    with_bench(tmp_path, run)


def test_no_report_scores_zero_whatever_the_exit_code_says(tmp_path):
    task = make_task(tmp_path / "task", verifier_timeout_s=4.0)

    async def run(bench):
        gone = await bench.grade(task, "echo 'import os; os._exit(0)' > /app/solution.py")
        assert (gone.reward, gone.source) == (0.0, RewardSource.NO_REPORT)
        assert gone.quarantined
        stuck = await bench.grade(task, "echo 'import time; time.sleep(99)' > /app/solution.py")
        assert (stuck.reward, stuck.source) == (0.0, RewardSource.NO_REPORT)
        assert "timeout" in stuck.flags
        assert not stuck.quarantined

    with_bench(tmp_path, run)


def test_a_broken_test_file_is_told_from_failing_tests(tmp_path):
    task = make_task(tmp_path / "task", tests="import nowhere\n" + TEST_OUTPUTS)

    async def run(bench):
        grade = await bench.grade(task, RIGHT)
        assert grade.source is RewardSource.NO_REPORT
        assert grade.flags == ("no-report:no tests: collection failed",)

    with_bench(tmp_path, run)


def test_special_files_are_flagged_and_quarantined_but_the_count_stands(tmp_path):
    task = make_task(tmp_path / "task")

    async def run(bench):
        grade = await bench.grade(task, RIGHT + "; mkfifo /app/pipe; cp /bin/true /app/t; chmod u+s /app/t")
        assert grade.reward == 5 / 20
        assert set(grade.flags) == {"special-file:/app/pipe", "set-uid:/app/t"}
        assert grade.quarantined

    with_bench(tmp_path, run)


def test_a_script_of_the_tasks_own_is_run_as_it_stands(tmp_path):
    script = "#!/bin/bash\nexport MODE=own\npytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py\n"
    task = make_task(tmp_path / "own", script=script)
    plain = make_task(
        tmp_path / "plain", script="test -s /app/solution.py && echo 1 > /logs/verifier/reward.txt\n"
    )

    own_word = make_task(
        tmp_path / "word",
        script="echo '{\"reward\": 0.5}' > /logs/verifier/reward.json\n",
        test_names=("test.sh",),
    )
    late = make_task(tmp_path / "late", script="sleep 60\n", test_names=("test.sh",), verifier_timeout_s=1.0)
    odd_word = make_task(tmp_path / "odd", script="echo '{\"reward\": 5}' > /logs/verifier/reward.json\n")

    async def run(bench):
        right = await bench.grade(task, RIGHT)
        assert (right.reward, right.source, right.flags) == (5 / 20, RewardSource.CTRF, ())
        wrong = await bench.grade(task, WRONG)
        assert (wrong.reward, wrong.passed) == (1 / 20, 1)
        unasked = await bench.grade(plain, RIGHT)
        assert (unasked.reward, unasked.source, unasked.solved) == (1.0, RewardSource.BINARY, True)
        assert unasked.passed == len(unasked.tests)
        partial = await bench.grade(own_word, "true")
        assert (partial.reward, partial.solved, partial.quarantined) == (0.5, False, False)
        overdue = await bench.grade(late, "true")
        assert (overdue.reward, overdue.flags, overdue.quarantined) == (0.0, ("timeout",), False)
        odd = await bench.grade(odd_word, "true")
        assert (odd.reward, odd.quarantined) == (
            0.0,
            True,
        ) and "reward:reward.json is not from 0 to 1" in odd.flags
        absent = await bench.grade(plain, "true")
        assert (absent.reward, absent.source) == (0.0, RewardSource.BINARY)

    with_bench(tmp_path, run)


def test_a_killed_fork_server_costs_a_grade_its_reward_at_most_and_comes_back(tmp_path):
    task = make_task(tmp_path / "task")

    async def run(bench):
        os.kill(bench.grader.server_pid, signal.SIGKILL)
        layer = await untouched(bench)
        grades = [await bench.grader.grade(task, layer, attempt_dir=tmp_path / f"a{i}") for i in range(3)]
        layer.close()
        assert grades[-1].source is RewardSource.CTRF
        for grade in grades:
            assert (grade.reward is None) == (grade.source is RewardSource.NONE)

    with_bench(tmp_path, run)


@pytest.mark.parametrize("way", ["cancelled", "late", "server killed"])
def test_a_grade_cut_short_returns_when_nothing_runs_as_its_uid(tmp_path, way):
    task = make_task(tmp_path / "task", verifier_timeout_s=5.0 if way == "late" else 60.0)
    crowd = (
        "import subprocess\nfor _ in range(50): subprocess.Popen(['sleep', '51.5'])\n"
        "subprocess.run(['sleep', '52.5'])"
    )

    async def run(bench):
        box = await bench.sandbox.open(BoxSpec("trial", None))
        await box.exec(f'echo "{crowd}" > /app/solution.py', timeout_s=20)
        layer = await box.snapshot()
        grading = asyncio.create_task(bench.grader.grade(task, layer, attempt_dir=tmp_path / "a"))
        while not grading.done() and not host_processes("sleep 52.5"):
            await asyncio.sleep(0.02)
        if way == "cancelled":
            grading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await grading
        else:
            if way == "server killed":
                os.kill(bench.grader.server_pid, signal.SIGKILL)
            assert (await grading).source is not RewardSource.CTRF
        assert processes_as(layer.uid) == []
        assert host_processes("sleep 51.5") == [] or os.geteuid() != 0
        layer.close()

    with_bench(tmp_path, run)


def test_a_server_that_takes_no_orders_costs_one_grade_and_holds_up_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_server, "LATE_S", 0.5)
    task = make_task(tmp_path / "task", verifier_timeout_s=2.0)

    async def run(bench):
        layer = await untouched(bench)
        stopped = bench.grader.server_pid
        os.kill(stopped, signal.SIGSTOP)
        large = replace(layer, workdir="/" + "x" * 500_000)
        grading = asyncio.create_task(bench.grader.grade(task, large, attempt_dir=tmp_path / "a"))
        longest, last = 0.0, time.monotonic()
        while not grading.done():
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        grade = grading.result()
        assert (grade.reward, grade.flags) == (None, ("grader-lost:no answer within 2.5 s",))
        assert longest < 10
        fine = replace(task, verifier_timeout_s=60.0)
        assert (await bench.grader.grade(fine, layer, attempt_dir=tmp_path / "b")).source is RewardSource.CTRF
        assert bench.grader.server_pid != stopped
        layer.close()

    with_bench(tmp_path, run)


def test_a_start_that_is_cancelled_leaves_no_server(tmp_path):
    async def run() -> None:
        grader = Grader()
        starting = asyncio.create_task(grader.start())
        while grader._block is None or not list(grader._block.path.glob("server-*/log")):
            await asyncio.sleep(0)
        (directory,) = grader._block.path.glob("server-*")
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not directory.exists()
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children]
        assert [command for command in commands if str(directory) in command] == []

    asyncio.run(run())


@pytest.mark.parametrize("limit", ["max_parallel", "max_processes", "memory_mb"])
def test_a_limit_that_no_grade_could_meet_is_refused(limit):
    with pytest.raises(ValueError, match=f"Grader: {limit} 0"):
        Grader(**{limit: 0})


def test_a_task_without_tests_is_refused(tmp_path):
    task = make_task(tmp_path / "task", test_names=())

    async def run(bench):
        layer = await untouched(bench)
        with pytest.raises(ValueError, match="no tests to grade with"):
            await bench.grader.grade(task, layer, attempt_dir=tmp_path / "a")
        layer.close()

    with_bench(tmp_path, run)


def test_many_grades_at_once_do_not_mix(tmp_path):
    task = make_task(tmp_path / "task")

    async def run(bench):
        grades = await asyncio.gather(*(bench.grade(task, RIGHT if i % 2 else WRONG) for i in range(8)))
        assert [grade.passed for grade in grades] == [1, 5] * 4
        assert all(grade.flags == () for grade in grades)

    with_bench(tmp_path, run, max_parallel=4)


def test_a_cancelled_grade_ends_its_child_and_leaves_nothing(tmp_path):
    task = make_task(tmp_path / "task")

    async def run(bench):
        grading = asyncio.create_task(
            bench.grade(
                task, 'echo \'import subprocess; subprocess.run(["sleep", "48.5"])\' > /app/solution.py'
            )
        )
        while not host_processes("sleep 48.5"):
            await asyncio.sleep(0.02)
        grading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await grading
        assert (await bench.grade(task, RIGHT)).solved
        assert host_processes("sleep 48.5") == []

    with_bench(tmp_path, run)
