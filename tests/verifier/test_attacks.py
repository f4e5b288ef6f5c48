"""The grader under attack: what is refused, and what is known to get through."""

import pytest

from tests.verifier.attacks import BYPASSES, REFUSED
from tests.verifier.trials import WRONG, make_task, with_bench


def test_no_attack_from_outside_the_tests_own_process_raises_the_reward(tmp_path):
    task = make_task(tmp_path / "task", verifier_timeout_s=20.0)

    async def run(bench):
        honest = await bench.grade(task, WRONG)
        assert honest.reward == 1 / 20
        fooled = {}
        for name, script in REFUSED.items():
            grade = await bench.grade(task, script)
            if grade.reward is None or grade.reward > honest.reward:
                fooled[name] = (grade.reward, grade.flags)
        assert fooled == {}

    with_bench(tmp_path, run)


@pytest.mark.parametrize("name", BYPASSES)
def test_the_known_bypasses_still_work_so_the_documents_are_true(tmp_path, name):
    task = make_task(tmp_path / "task")

    async def run(bench):
        assert (await bench.grade(task, BYPASSES[name])).reward == 5 / 20

    with_bench(tmp_path, run)


def test_wholesale_forging_trips_a_canary(tmp_path):
    task = make_task(tmp_path / "task")

    async def run(bench):
        for name in ("reporter patched for every test", "reporter patched by module"):
            grade = await bench.grade(task, REFUSED[name])
            assert grade.reward == 0.0
            assert grade.quarantined
            assert any(flag.startswith("canary:") for flag in grade.flags), (name, grade.flags)

    with_bench(tmp_path, run)


def test_traps_for_the_grader_are_listed(tmp_path):
    task = make_task(tmp_path / "task")
    expected = {
        "report written in advance, then exit 0": "report-in-advance:/logs/verifier",
        "report directory is a link": "link-on-mount-target:/logs/verifier",
        "conftest in every directory": "test-hook:/app/conftest.py",
    }

    async def run(bench):
        for name, flag in expected.items():
            grade = await bench.grade(task, REFUSED[name])
            assert flag in grade.flags
            assert grade.quarantined

    with_bench(tmp_path, run)


def test_an_honest_install_is_not_punished(tmp_path):
    task = make_task(tmp_path / "task")
    install = (
        "D=/root/.local/lib/python3.12/site-packages; mkdir -p $D; echo > $D/tool.py; echo > $D/tool.pth"
    )

    async def run(bench):
        grade = await bench.grade(task, f"{WRONG}; {install}")
        assert (grade.reward, grade.flags, grade.quarantined) == (1 / 20, (), False)

    with_bench(tmp_path, run)
