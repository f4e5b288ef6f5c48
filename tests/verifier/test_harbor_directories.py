"""Whole task directories as Harbor's authors write them, from the box to the reward."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest

from t1core.records import RewardSource
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.request import box_spec
from t1core.tasks.harbor import load_task
from t1core.verifier.grader import Grader
from tests.tasks.conformance import Case
from tests.tasks.test_test_script import TEMPLATE

OUTCOME = ("honoured", {})
SEVERAL = {
    "tests/test_outputs.py": None,
    "tests/test_state.py": "import pathlib\ndef test_a(): assert pathlib.Path('/app/a').exists()\n",
    "tests/more_test.py": "def test_b(): assert True\n",
    "tests/test.sh": "cd /tests && pytest --ctrf /logs/verifier/ctrf.json more_test.py test_state.py\n",
}
ALONE = {"tests/test_outputs.py": None}
OFFICIAL = TEMPLATE.replace("\\\\", "\\")
# directory, reward without and with the solution, where it comes from
DIRECTORIES = [
    (Case("official", "", OUTCOME, {"tests/test.sh": OFFICIAL}), 0.05, 0.1, RewardSource.CTRF),
    (
        Case("without_a_report", "", OUTCOME, {"tests/test.sh": "pytest /tests/test_outputs.py -rA\n"}),
        0.05,
        0.1,
        RewardSource.CTRF,
    ),
    (Case("several_files", "", OUTCOME, SEVERAL), 0.05, 0.1, RewardSource.CTRF),
    (
        Case(
            "reward_txt",
            "[solution]\nenv = { NAME = 'a' }\n[verifier]\nenv = { WANTED = '/app/a' }\n",
            OUTCOME,
            ALONE
            | {
                "tests/test.sh": 'test -e "$WANTED"; echo $(( 1 - $? )) > /logs/verifier/reward.txt\n',
                "solution/solve.sh": 'touch "/app/$NAME"\n',
            },
        ),
        0.0,
        1.0,
        RewardSource.BINARY,
    ),
    (
        Case(
            "reward_json",
            "[environment]\nworkdir = '/app/sub'\nenv = { PART = '0.75' }\n",
            OUTCOME,
            ALONE
            | {
                "tests/test.sh": (
                    "[ -e a ] || PART=0\necho '{\"reward\": '$PART', \"speed\": 1}' > /logs/verifier/reward.json\n"
                ),
                "solution/solve.sh": "touch a\n",
            },
        ),
        0.0,
        0.75,
        RewardSource.BINARY,
    ),
]


@pytest.mark.parametrize(
    ("case", "without", "solved", "source"), DIRECTORIES, ids=[c[0].name for c in DIRECTORIES]
)
def test_a_directory_gives_its_reward_with_the_solution_and_not_without(
    case, without, solved, source, tmp_path
):
    task = load_task(case.write(tmp_path))

    async def run():
        sandbox, grader = BubblewrapSandbox(), Grader()
        try:
            await grader.start()
            for solves, expected in ((False, without), (True, solved)):
                limits = {"memory_mb": 512, "storage_mb": 64, "max_processes": 32}
                box = await sandbox.open(
                    box_spec(
                        task.environment, box_id="b", environment_dir=task.path / "environment", **limits
                    )
                )
                if solves:
                    await box.put(task.path / "solution/solve.sh", "/tmp/solve.sh")
                    done = await box.exec("bash /tmp/solve.sh", timeout_s=30, env=task.solution_env)
                    assert done.rc == 0, done.stderr
                layer = await box.snapshot()
                attempt = Path(tempfile.mkdtemp(dir=tmp_path))
                grade = await grader.grade(task, layer, attempt_dir=attempt)
                layer.close()
                shutil.rmtree(attempt)
                assert (grade.reward, grade.source) == (expected, source), grade.stdout_tail
                assert not grade.quarantined, grade.flags
        finally:
            await grader.close()
            await sandbox.close()

    asyncio.run(run())
