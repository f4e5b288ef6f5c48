"""Boxes and graders over an unpacked image instead of the host's /usr."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.sandbox import SandboxUnavailable
from t1core.verifier.grader import Grader
from tests.sandbox.boxes import in_sandbox, spec
from tests.sandbox.tiny_image import make_image
from tests.verifier.trials import make_task


@pytest.fixture
def image():
    with tempfile.TemporaryDirectory(prefix="t1-image-", dir="/var/tmp") as place:
        Path(place).chmod(0o755)  # boxes run as other uids, which must reach it
        yield make_image(Path(place) / "root")


def test_a_box_over_an_image_has_its_programs_and_files_and_not_the_hosts(image):
    async def run(sandbox):
        box = await sandbox.open(spec(docker_image="tiny:1"))
        done = await box.exec("cat /usr/share/marker given.txt; ls /usr/bin; touch /usr/x", timeout_s=30)
        words = done.stdout.decode().split()
        assert words[:2] == ["image", "given"]
        assert "tmux" in words and "id" not in words and "gcc" not in words
        assert b"Read-only file system" in done.stderr
        terminal = await box.terminal()
        assert await terminal.send_keys("echo more >> given.txt; cat given.txt\n", max_wait_s=60)
        assert (await terminal.screen()).splitlines()[-3:-1] == ["given", "more"]
        await box.close()
        again = await sandbox.open(spec())
        assert (await again.exec("cat given.txt", timeout_s=30)).stdout == b"given\n"

    in_sandbox(run, image=image)
    assert not (image / "usr/x").exists()


def test_grades_see_the_image_that_the_box_was_opened_over(image, tmp_path):
    tests = (
        "import os, subprocess\n"
        "def test_a(): assert subprocess.check_output(['cat', '/usr/share/marker', '/app/own']) == b'image\\nown\\n'\n"
        "def test_b(): assert not os.path.exists('/usr/bin/id')\n"
    )
    names = ("test_outputs.py::test_a", "test_outputs.py::test_b")
    task = make_task(tmp_path / "task", tests=tests, test_names=names)

    async def run() -> None:
        sandbox, grader = BubblewrapSandbox(image=image), Grader(image=image)
        try:
            await grader.start()
            box = await sandbox.open(spec())
            await box.exec("echo own > own", timeout_s=30)
            layer = await box.snapshot()
            grade = await grader.grade(task, layer, attempt_dir=tmp_path / "attempt")
            layer.close()
            assert grade.solved, grade.stdout_tail
        finally:
            await grader.close()
            await sandbox.close()

    asyncio.run(run())


def test_an_image_that_lacks_what_a_box_needs_is_refused_by_name(image):
    with pytest.raises(ValueError, match=r"image /nowhere: no such directory"):
        BubblewrapSandbox(image=Path("/nowhere"))
    (image / "usr/bin/tmux").unlink()
    with pytest.raises(
        SandboxUnavailable, match=r"tmux is not installed in the image .*apt-get install -y tmux, there"
    ):
        BubblewrapSandbox(image=image)
