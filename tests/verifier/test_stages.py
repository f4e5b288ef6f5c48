"""Tasks in several steps, tests apart from the agent's files, health checks and hooks: real boxes, real grades."""

import asyncio
import shlex
from dataclasses import replace

import pytest

from t1core.records import Grade, HealthCheck, RewardSource, Task
from t1core.sandbox.healthcheck import Unhealthy, wait_healthy
from t1core.sandbox.request import box_spec
from t1core.sandbox.sandbox import CUT, BoxBroken, BoxSpec
from t1core.tasks.harbor import load_task
from t1core.verifier.stages import begin, goes_on, grade_stage, whole_grade
from tests.tasks.conformance import Case
from tests.verifier.trials import with_bench

LIMITS = {"memory_mb": 512, "storage_mb": 64, "max_processes": 32}
TWO_STEPS = {
    "instruction.md": None,
    "tests/test_outputs.py": None,
    "tests/test.sh": None,
    "tests/names.py": "A, B = '/app/a', '/app/b'\n",
    "steps/one/instruction.md": "Make a.\n",
    "steps/one/workdir/given.txt": "given\n",
    "steps/one/workdir/setup.sh": "cp given.txt set-up.txt\n",
    "steps/one/tests/test_outputs.py": (
        "import os, sys\nsys.path.insert(0, '/tests')\nfrom names import A\n"
        "def test_set_up(): assert open('/app/set-up.txt').read() == 'given\\n'\n"
        "def test_a(): assert os.path.exists(A)\n"
    ),
    "steps/two/instruction.md": "Make b.\n",
    "steps/two/tests/test_outputs.py": (
        "import os\ndef test_both(): assert os.path.exists('/app/a') and os.path.exists('/app/b')\n"
        "def test_alive(): assert open('/app/alive').read() == '1\\n'\n"
        "def test_mode(): assert os.environ['MODE'] == 'two'\n"
    ),
}
TOML = """
[verifier]
env = { MODE = "one" }
[[steps]]
name = "one"
[[steps]]
name = "two"
verifier = { env = { MODE = "two" } }
"""


async def played(bench, task: Task, *scripts: str) -> tuple[Grade, list[Grade]]:
    """What a trial does, with a script in the place of an agent at each step."""

    def asked(tests=None):
        given = task.environment if tests is None else tests.environment
        directory = task.path / "environment" if tests is None else tests.directory
        return box_spec(
            given, box_id="b", environment_dir=directory, is_for_tests=tests is not None, **LIMITS
        )

    box = await bench.sandbox.open(asked())
    grades = []
    for stage, script in zip(task.stages, scripts, strict=False):
        await begin(box, stage)
        await box.exec(script, timeout_s=20)
        is_last = stage is task.stages[-1]
        given = {"kind": "dense", "scale": 20.0, "subtract_nop": False, "tests_spec": asked}
        graded = await grade_stage(
            stage, box, sandbox=bench.sandbox, grader=bench.grader, is_last=is_last, **given
        )
        grades.append(graded.grade)
        if not goes_on(stage, grades[-1]):
            break
    await box.close()
    assert [path.name for path in bench.sandbox.state_path.iterdir()] == ["etc"]
    return whole_grade(task, grades, is_broken=False), grades


def test_each_step_is_graded_over_what_those_before_it_left_and_the_mean_counts(tmp_path):
    task = load_task(Case("steps", TOML, (), TWO_STEPS).write(tmp_path))

    async def run(bench):
        first = "touch a; (setsid sleep 53.5 &) > /dev/null 2>&1"
        grade, (one, two) = await played(bench, task, first, "touch b; pgrep -xc sleep > alive")
        assert (one.reward, two.reward, grade.reward) == (0.1, 0.15, 0.125), two.stdout_tail
        assert (grade.passed, grade.total, grade.solved, grade.flags) == (5, 5, True, ())
        assert tuple(test.name for test in grade.tests) == task.test_names
        assert task.test_names[0] == "one/test_outputs.py::test_set_up"
        final, _ = await played(bench, replace(task, takes_final_reward=True), first, "true")
        assert (final.reward, final.passed, final.solved) == (0.05, 3, False)

    with_bench(tmp_path, run)


def test_a_step_is_not_begun_where_the_one_before_it_earned_too_little(tmp_path):
    toml = TOML.replace('name = "one"\n', 'name = "one"\nmin_reward = 1.0\n')
    task = load_task(Case("gated", toml, (), TWO_STEPS).write(tmp_path))

    async def run(bench):
        grade, grades = await played(bench, task, "true", "touch b")
        # One of step one's two tests passes; Harbor's reward for that is 0, and the mean is over what was graded.
        assert (len(grades), grades[0].declared, grade.reward) == (1, 0.0, 0.05)
        assert (grade.passed, grade.total, grade.solved) == (1, 5, False)
        _, grades = await played(bench, task, "touch a", "touch b")
        assert [each.declared for each in grades] == [1.0, 0.0]

    with_bench(tmp_path, run)


def test_a_whole_grade_by_hand():
    steps = tuple(
        Task("t", "f", "train", None, "", ("a", "b"), step_name=name) for name in ("one", "two", "three")
    )
    task = Task("t", "f", "train", None, "", ("x",) * 6, steps=steps)
    good = Grade(0.1, RewardSource.CTRF, 2, 2, True, (), cpu_s=1.0, declared=1.0)
    odd = Grade(0.05, RewardSource.CTRF, 1, 2, False, (), flags=("unsealed",), quarantined=True, cpu_s=2.0)
    whole = whole_grade(task, [good, odd], is_broken=False)
    assert whole.reward == pytest.approx(0.075) and whole.passed == 3 and whole.cpu_s == 3.0
    assert (whole.flags, whole.quarantined, whole.solved) == (("two: unsealed",), True, False)
    # Breaking the box is no way around the steps that are left, whichever reward is taken.
    assert whole_grade(task, [good], is_broken=True).reward == pytest.approx(0.1 / 3)
    assert whole_grade(replace(task, takes_final_reward=True), [good], is_broken=True).reward == 0.0
    # A step that the grader failed on leaves no number at all.
    none = Grade(None, RewardSource.NONE, 0, 2, False, (), flags=("grader-lost",))
    ungraded = whole_grade(task, [good, none], is_broken=False)
    assert (ungraded.reward, ungraded.source) == (None, RewardSource.NONE)
    assert not goes_on(replace(steps[0], min_reward=0.5), replace(odd, declared=None))


def test_a_setup_that_fails_is_the_tasks_fault(tmp_path):
    files = TWO_STEPS | {"steps/one/workdir/setup.sh": "echo no such luck >&2; exit 3\n"}
    task = load_task(Case("setup", TOML, (), files).write(tmp_path))

    async def run(bench):
        box = await bench.sandbox.open(BoxSpec("b", None))
        with pytest.raises(ValueError, match=r"steps/one/workdir/setup\.sh ended with 3: no such luck"):
            await begin(box, task.steps[0])

    with_bench(tmp_path, run)


SEPARATE = """
artifacts = ["/app/kept", { source = "tree", exclude = ["*.o"] }, "/app/missing"]
[environment]
env = { OF = "agent" }
[verifier.environment]
env = { OF = "tests" }
"""
SEPARATE_TESTS = """
import os, stat
def test_kept(): assert open('/app/kept').read() == 'kept\\n'
def test_tree(): assert sorted(os.listdir('/app/tree')) == ['link', 'x.c']
def test_no_mode(): assert not os.stat('/app/tree/x.c').st_mode & stat.S_ISUID
def test_nothing_else(): assert not os.path.exists('/app/other') and not os.path.exists('/root/.bashrc')
def test_published(): assert open('/logs/artifacts/out').read() == 'out\\n'
def test_own_box(): assert open('/app/made').read() == 'tests\\n' and os.environ['OF'] == 'tests'
"""
SEPARATE_FILES = {
    "tests/test_outputs.py": SEPARATE_TESTS,
    "tests/Dockerfile": "FROM ubuntu\nWORKDIR /tests\nCOPY . /tests/\nRUN echo $OF > /app/made\n",
}


def test_separate_tests_see_the_artifacts_over_a_box_of_their_own_and_nothing_else(tmp_path):
    task = load_task(Case("separate", SEPARATE, (), SEPARATE_FILES).write(tmp_path))
    work = (
        "echo kept > kept; echo other > other; echo mine > made; mkdir tree; touch tree/x.c tree/x.o; "
        "chmod u+s tree/x.c; ln -s ../other tree/link; echo x > /root/.bashrc; mkdir -p /logs/artifacts; "
        "echo out > /logs/artifacts/out"
    )

    async def run(bench):
        grade, _ = await played(bench, task, work)
        failed = [test.name for test in grade.tests if test.status != "passed"]
        assert (failed, grade.passed, grade.flags) == ([], 6, ()), grade.stdout_tail
        nothing, _ = await played(bench, task, "rm -rf /app/*; chmod 0 /app")
        assert nothing.passed == 2  # what asks for nothing of the agent's

    with_bench(tmp_path, run)


def test_what_the_author_collects_is_there_for_the_tests(tmp_path):
    toml = "[[verifier.collect]]\ncommand = 'false'\n[[verifier.collect]]\ncommand = 'date > /app/a'\n"
    task = load_task(Case("collect", toml, ()).write(tmp_path))

    async def run(bench):
        grade, _ = await played(bench, task, "true")
        assert grade.solved

    with_bench(tmp_path, run)


def test_a_copy_that_would_be_larger_than_a_box_may_be_is_cut_and_says_so(tmp_path):
    async def run(bench):
        box = await bench.sandbox.open(BoxSpec("b", None, storage_mb=64))
        box.spec = replace(box.spec, storage_mb=1)  # what the copy's is reckoned from
        # Long enough for the watch of the box that it is unpacked in to look.
        box._packer = ("bash", "-c", f'{shlex.join(box._packer)} "$@"; [ "$1" = pack ] || sleep 20', "slow")
        await box.exec("head -c 9000000 /dev/urandom > f", timeout_s=20)
        layer = await box.copy()
        assert layer.flags == (CUT,)
        layer.close()
        assert (await box.exec("stat -c %s f", timeout_s=20)).stdout == b"9000000\n"  # it lives on

    with_bench(tmp_path, run)


def test_a_box_that_breaks_while_it_is_copied_is_graded_as_it_is(tmp_path):
    task = load_task(Case("steps", TOML, (), TWO_STEPS).write(tmp_path))

    async def run(bench):
        box = await bench.sandbox.open(BoxSpec("b", None))
        await begin(box, task.steps[0])
        await box.exec("touch a", timeout_s=20)

        async def broken():
            raise BoxBroken("its own doing")

        box.copy = broken
        given = {"kind": "dense", "scale": 20.0, "subtract_nop": False, "tests_spec": None}
        given |= {"sandbox": bench.sandbox, "grader": bench.grader, "is_last": False}
        graded = await grade_stage(task.steps[0], box, **given)
        assert graded.is_broken and graded.grade.reward == 0.1

    with_bench(tmp_path, run)


class Answering:
    """A box whose commands end with the given codes in turn; it notes when they were run."""

    def __init__(self, *codes):
        self.codes, self.at_s = list(codes), []

    async def exec(self, cmd, *, timeout_s):
        self.at_s.append(asyncio.get_running_loop().time())
        code = self.codes.pop(0)
        return type("Done", (), {"rc": code, "timed_out": code == -9, "stdout": b"", "stderr": b"not yet"})


def test_a_health_check_counts_as_dockers_does():
    quick = HealthCheck("up?", interval_s=0.02, timeout_s=1.0, start_interval_s=0.01, retries=2)

    async def run():
        box = Answering(1, 0)
        await wait_healthy(box, quick)
        assert len(box.at_s) == 2 and box.at_s[1] - box.at_s[0] >= 0.015
        with pytest.raises(Unhealthy, match=r"'up\?' failed 2 times, and last ended with 7: not yet"):
            await wait_healthy(Answering(1, 7), quick)
        with pytest.raises(Unhealthy, match="last took longer than 1 s"):
            await wait_healthy(Answering(-9, -9), quick)
        patient = replace(quick, start_period_s=0.2, start_interval_s=0.05)
        box = Answering(*[1] * 4, 0)  # more failures than retries, all in the start period
        await wait_healthy(box, patient)
        assert len(box.at_s) == 5

    asyncio.run(run())


def test_a_service_that_an_entrypoint_starts_is_waited_for(tmp_path):
    (tmp_path / "Dockerfile").write_text(
        'FROM x\nCOPY serve.sh /app/\nCMD ["x"]\nEXPOSE 80\nENTRYPOINT ["bash", "/app/serve.sh"]\n'
    )
    (tmp_path / "serve.sh").write_text('sleep 0.3; touch /app/up; exec "$@"\n')

    async def run(bench):
        box = await bench.sandbox.open(BoxSpec("b", tmp_path))
        await wait_healthy(box, HealthCheck("test -e /app/up", interval_s=0.1, retries=100))
        assert (await box.exec("pgrep -x sleep", timeout_s=9)).rc == 0  # what Harbor gives it to run

    with_bench(tmp_path, run)
