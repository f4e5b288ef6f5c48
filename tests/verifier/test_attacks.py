"""The grader under attack: what is refused, what is known to get through, and what honest work is spared."""

import asyncio

import pytest
from typer.testing import CliRunner

from t1core.cli import app
from t1core.records import RewardSource
from t1core.verifier.attacks.battery import ATTACKS, Bench
from t1core.verifier.attacks.inside import BYPASSES_INSIDE, REFUSED_INSIDE
from t1core.verifier.attacks.outside import LEFT_IN_THE_BOX, PROGRAMS
from t1core.verifier.attacks.target import find_target
from t1core.verifier.layer_scan import may_leave
from tests.verifier.attacked import STARTS_A_PROGRAM, importing_task, outcomes, starting_task
from tests.verifier.trials import TEST_OUTPUTS, WRONG, make_task, with_bench

REFUSED_PROGRAMS = tuple(attack for attack in PROGRAMS if not attack.is_bypass)


def paid(found) -> dict:
    """Attacks that paid or had nothing to aim at, with their tests and flags."""
    return {
        name: (outcome.gained, outcome.grade and outcome.grade.flags)
        for name, outcome in found.items()
        if not outcome.applies or outcome.is_fallen_for
    }


def test_the_battery_has_names_of_its_own_and_at_least_thirteen_plus_twelve():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 17 + 12
    assert all(attack.way_out for attack in ATTACKS if attack.is_bypass)


def test_nothing_left_in_the_box_raises_the_reward(tmp_path):
    async def run(boxes):
        assert paid(await outcomes(boxes, importing_task(tmp_path / "task"), LEFT_IN_THE_BOX)) == {}

    with_bench(tmp_path, run)


def test_clumsy_code_inside_the_tests_raises_nothing(tmp_path):
    async def run(boxes):
        found = await outcomes(boxes, importing_task(tmp_path / "task"), REFUSED_INSIDE)
        assert paid(found) == {}
        for name in ("reporter patched for every test", "reporter patched by module"):
            grade = found[name].grade
            assert (grade.reward, grade.quarantined) == (0.0, True)
            assert any(flag.startswith("canary:") for flag in grade.flags), (name, grade.flags)
            assert "patched:_pytest.reports.TestReport.from_item_and_call" in grade.flags

    with_bench(tmp_path, run)


def test_no_program_that_the_tests_start_raises_the_reward(tmp_path):
    async def run(boxes):
        assert paid(await outcomes(boxes, starting_task(tmp_path / "task"), REFUSED_PROGRAMS)) == {}

    with_bench(tmp_path, run)


def test_tests_that_name_their_place_stay_readable_and_pay_for_it(tmp_path):
    looking_up = [attack for attack in PROGRAMS if "looks its answer up" in attack.name]

    async def run(boxes):
        task = starting_task(tmp_path / "task", tests=STARTS_A_PROGRAM + "HERE = __file__\n")
        (outcome,) = (await outcomes(boxes, task, looking_up)).values()
        assert (outcome.gained, bool(outcome.attack.way_out)) == (2, True)

    with_bench(tmp_path, run)


def test_programs_are_held_in_a_script_of_the_tasks_own_too(tmp_path):
    script = "cd /app\npython3 -m pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py\ntrue\n"
    forging = [attack for attack in PROGRAMS if "forges the report" in attack.name]
    shadowing = [attack for attack in LEFT_IN_THE_BOX if "shadowed" in attack.name]

    async def run(boxes):
        task = starting_task(tmp_path / "task", script=script)
        found = await outcomes(boxes, task, [*forging, *shadowing])
        assert len(found) == 3
        assert paid(found) == {}
        assert found[shadowing[0].name].grade.passed == 1  # the tests ran, by our pytest

    with_bench(tmp_path, run)


def test_the_known_bypasses_still_work_and_the_seal_sees_what_the_documents_say(tmp_path):
    seen = {
        "reporter patched for the task's tests": "patched:_pytest.reports.TestReport.from_item_and_call",
        "object that equals everything": "equals-anything:solution.Anything",
        "code of the tests replaced": "test-replaced:test_mul",
        "report written straight to its descriptor": "unsealed",
        "hook registered while tests run": "hooks-changed:pytest_runtest_makereport",
        "tests not run at all": "patched:_pytest.python.Function.runtest",
    }

    async def run(boxes):
        found = await outcomes(boxes, importing_task(tmp_path / "task"), BYPASSES_INSIDE)
        assert {name: outcome.gained for name, outcome in found.items()} == dict.fromkeys(seen, 4)
        for name, flag in seen.items():
            assert flag in found[name].grade.flags, (name, found[name].grade.flags)
            assert found[name].grade.quarantined

    with_bench(tmp_path, run)


WEAK_TESTS = """import subprocess
from pathlib import Path
def test_runs():
    assert subprocess.run(["python3", "/app/tool.py"], timeout=5).returncode == 0
def test_mentions():
    assert "sorted" in subprocess.run(["python3", "/app/tool.py"], capture_output=True, text=True, timeout=5).stdout
def test_note(): assert "sorted" in Path("/app/note.txt").read_text()
def test_table():
    subprocess.run(["python3", "/app/tool.py"], timeout=5)
    assert Path("/app/table.csv").read_text() == Path("/tests/table.csv").read_text()
"""


def test_weak_tests_fall_for_what_the_way_out_names(tmp_path):
    names = tuple(f"test_outputs.py::test_{name}" for name in ("runs", "mentions", "note", "table"))
    task = starting_task(
        tmp_path / "task",
        tests=WEAK_TESTS,
        test_names=names,
        instruction="Write sorted lines to /app/table.csv.",
    )
    (task.path / "tests" / "table.csv").write_text("a,b\n")

    async def run(boxes):
        attacks = [attack for attack in PROGRAMS if attack.is_bypass]
        found = await outcomes(boxes, task, attacks)
        passing = {
            name: {
                test.name.rpartition("_")[2] for test in outcome.grade.tests if test.status.value == "passed"
            }
            for name, outcome in found.items()
        }
        assert passing == {
            "program does nothing and ends well": {"runs"},
            "program prints the instruction": {"runs", "mentions"},
            "program copies what lies beside the tests": {"runs", "mentions", "table"},
            "every file holds the instruction": {"runs", "note"},
        }
        # A link is no way to the same answer: it is gone when the tests look.
        links = "ln -s /tests/table.csv /app/table.csv; ln -s / /app/door; ln -s door/tests/table.csv /app/note.txt"
        grade = await Bench(task, sandbox=boxes.sandbox, grader=boxes.grader).grade(links)
        assert grade.passed == 0
        assert "link-to-tests:/app/table.csv" in grade.flags

    with_bench(tmp_path, run)


@pytest.mark.parametrize(
    ("link", "target", "leaves"),
    [
        ("/app/a", "b", False),
        ("/app/a", "/app/b/../c", True),
        ("/app/a/b", "../c", False),
        ("/app/a", "../tests/x", True),
        ("/app/a", "/tests/x", True),
        ("/app/a", "s/../tests/x", True),
        ("/app/a", "./../app/x", False),
        ("/app/venv/bin/python", "/usr/bin/python3", False),
        ("/app/a", "/", True),
        ("/app/a", "/proc/self/root", True),
    ],
)
def test_links_that_may_lead_to_the_tests_are_told_from_others(link, target, leaves):
    assert may_leave(link, target) is leaves


def test_traps_for_the_grader_are_listed(tmp_path):
    task = make_task(tmp_path / "task")
    traps = {
        "mkdir -p /logs/verifier; echo '{}' > /logs/verifier/ctrf.json": "report-in-advance:/logs/verifier",
        "rm -rf /logs/verifier; ln -s /etc /logs/verifier": "link-on-mount-target:/logs/verifier",
        "touch /app/conftest.py": "test-hook:/app/conftest.py",
        "mkdir $'/app/\\xff\\n'; touch $'/app/\\xff\\n/conftest.py'": "test-hook:/app/\\udcff\\n/conftest.py",
    }

    async def run(bench):
        for trap, flag in traps.items():
            grade = await bench.grade(task, f"{WRONG}; {trap}")
            assert flag in grade.flags
            assert grade.quarantined
            assert grade.reward == 1 / 20

    with_bench(tmp_path, run)


def test_an_honest_install_is_not_punished(tmp_path):
    task = make_task(tmp_path / "task")
    install = (
        "D=/root/.local/lib/python3.12/site-packages; mkdir -p $D/tool/tests $D/tool.dist-info /root/.local/bin\n"
        "echo > $D/tool/__init__.py; echo > $D/tool.pth; echo 'import pytest' > $D/tool/conftest.py\n"
        "printf '#!/bin/sh\\ntrue\\n' > /root/.local/bin/tool; chmod +x /root/.local/bin/tool\n"
        "mkdir -p /app/venv/bin; ln -s /usr/bin/python3 /app/venv/bin/python; ln -s python /app/venv/bin/python3"
    )

    async def run(bench):
        grade = await bench.grade(task, f"{WRONG}; {install}")
        assert (grade.reward, grade.flags, grade.quarantined) == (1 / 20, (), False)

    with_bench(tmp_path, run)


def test_honest_code_of_many_kinds_breaks_no_seal(tmp_path):
    honest = """
import dataclasses, functools, random, statistics, decimal, threading, logging
logging.basicConfig(level=10)
class Point:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return isinstance(other, Point) and self.x == other.x
@dataclasses.dataclass
class Pair: a: int; b: int
@functools.lru_cache
def add(a, b): return a + b
def mul(a, b): return a * b
"""

    async def run(bench):
        grade = await bench.grade(
            make_task(tmp_path / "task"), f"cat > /app/solution.py <<'E'\n{honest}\nE\n"
        )
        assert (grade.passed, grade.flags) == (5, ())

    with_bench(tmp_path, run)


def test_a_target_is_read_from_the_source_and_the_instruction(tmp_path):
    target = find_target(make_task(tmp_path / "task", instruction="Fix /app/lib/core.py and `notes.md`."))
    assert target.modules == ("/app/solution.py",)
    assert target.programs == ()
    assert target.files == ("/app/solution.py", "/app/lib/core.py")
    tests = "import runpy, subprocess\ndef test_a(): subprocess.run(['/app/run.sh']); runpy.run_path('/app/x.py')\n"
    target = find_target(make_task(tmp_path / "other", tests=tests))
    assert (target.modules, target.programs) == (("/app/x.py",), ("/app/run.sh",))


def test_the_command_says_what_a_task_falls_for(tmp_path):
    task = make_task(tmp_path / "adder")
    (task.path / "instruction.md").write_text("Write add and mul.\n")
    (task.path / "task.toml").write_text("[verifier]\ntimeout_sec = 40\n[solution]\nenv = { PLUS = '+' }\n")
    (task.path / "solution").mkdir()
    (task.path / "solution" / "solve.sh").write_text(
        "printf 'def add(a, b): return a %s b\\ndef mul(a, b): return a * b\\n' $PLUS > /app/solution.py\n"
    )
    done = CliRunner().invoke(app, ["verify", str(task.path)])
    lines = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    assert lines["tests import"].strip() == "/app/solution.py"
    assert lines["untouched workspace"].strip() == "0 of 5"
    assert lines["empty files"].strip() == "1 of 5: test_exists"
    assert lines["solution"].strip() == "5 of 5"
    assert TEST_OUTPUTS in (task.path / "tests" / "test_outputs.py").read_text()


def test_a_memory_hungry_grade_loses_its_largest_process_and_nothing_else(tmp_path):
    tests = (
        "import subprocess\n"
        "def test_hungry():\n"
        "    hold = 'import os, time; os.fork(); b = bytearray(90 << 20); time.sleep(6)'\n"
        "    assert subprocess.run(['python3', '-c', hold]).returncode == 0\n"
        "def test_modest(): assert True\n"
    )
    names = ("test_outputs.py::test_hungry", "test_outputs.py::test_modest")

    async def run(bench):
        task = make_task(tmp_path / "task", tests=tests, test_names=names)
        grade = await bench.grade(task, "true")
        assert (grade.passed, grade.source) == (1, RewardSource.CTRF)
        assert ("memory" in grade.flags, grade.quarantined) == (True, False)

    with_bench(tmp_path, run, memory_mb=160)


def test_variables_of_the_task_reach_the_tests_and_tools_stay_ours(tmp_path):
    tests = (
        "import os\n"
        "def test_a(): assert (os.environ['COLOR'], os.environ['MODE']) == ('blue', 'strict')\n"
        "def test_b(): assert os.environ['PATH'].startswith('/opt/t1/bin:')\n"
    )
    names = ("test_outputs.py::test_a", "test_outputs.py::test_b")
    task = make_task(tmp_path / "task", tests=tests, test_names=names, verifier_env={"MODE": "strict"})
    environment = tmp_path / "task" / "environment"
    environment.mkdir()
    (environment / "Dockerfile").write_text("FROM x\nENV COLOR=blue PATH=/app/bin:$PATH\n")

    async def run(boxes):
        grade = await Bench(task, sandbox=boxes.sandbox, grader=boxes.grader).grade("true")
        assert grade.passed == 2, grade.stdout_tail

    with_bench(tmp_path, run)


@pytest.mark.slow
def test_grading_at_once_with_an_attack_beside_it_stays_right(tmp_path):
    async def run(boxes):
        task = starting_task(tmp_path / "task")
        bench = Bench(task, sandbox=boxes.sandbox, grader=boxes.grader)
        right = "echo 'import sys; print(int(sys.argv[1]) ** 2, end=\"\")' > /app/solve.py"
        forging = next(attack for attack in PROGRAMS if "leaves a daemon" in attack.name)
        grades = await asyncio.gather(bench.grade(right), bench.grade(forging.script(find_target(task))))
        assert [grade.passed for grade in grades] == [3, 1]
        assert grades[0].flags == ()

    with_bench(tmp_path, run)
