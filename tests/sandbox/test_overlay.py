"""A box whose root is an overlay of an image: all of it can be written, and what is graded is what may be trusted."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from t1core.config import load_config
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.sandbox import BoxBroken
from t1core.verifier.grader import Grader
from tests.sandbox.boxes import in_sandbox, spec
from tests.sandbox.tiny_image import make_image
from tests.verifier.trials import make_task

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an image's root can be overlaid by root only")


@pytest.fixture(scope="module")
def image():
    with tempfile.TemporaryDirectory(prefix="t1-image-", dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        root = make_image(Path(place) / "root")
        (root / "srv").mkdir()
        (root / "srv/data").write_text("data\n")
        (root / "usr/local/bin").mkdir(parents=True)
        (root / "app/gone.txt").write_text("gone\n")
        yield root


def names(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_everything_can_be_written_and_the_image_stays_as_it_is(image):
    before = names(image)

    async def run(sandbox):
        box = await sandbox.open(spec())
        done = await box.exec(
            "touch /usr/bin/x /new && rm /usr/bin/ls && mkdir -p /etc/conf.d && echo a >> /etc/passwd && "
            "cat /srv/data && echo more >> /srv/data && rm gone.txt && cat given.txt", timeout_s=30,
        )  # fmt: skip
        assert (done.rc, done.stdout) == (0, b"data\ngiven\n"), done.stderr
        other = await sandbox.open(spec("other"))
        done = await other.exec("cat gone.txt /srv/data; ls -d /new", timeout_s=30)
        assert done.stdout == b"gone\ndata\n" and done.rc != 0
        layer = await box.snapshot()
        assert set(layer.directories) >= {"/app", "/srv", "/tmp", "/root", "/logs"}
        assert not {"/usr", "/etc", "/bin", "/run"} & set(layer.directories)
        layer.close()

    in_sandbox(run, image=image, is_overlay=True)
    assert names(image) == before
    assert (image / "srv/data").read_text() == "data\n"
    assert "t1-image" not in Path("/proc/self/mountinfo").read_text()


def grade_of(image, tmp_path, script, tests):
    functions = [f"def test_{i}(): {test}" for i, test in enumerate(tests)]
    task = make_task(
        tmp_path / "task",
        tests="import os, pathlib, subprocess\n" + "\n".join(functions) + "\n",
        test_names=tuple(f"test_outputs.py::test_{i}" for i in range(len(tests))),
    )

    async def run():
        sandbox, grader = BubblewrapSandbox(image=image, is_overlay=True), Grader(image=image)
        try:
            await grader.start()
            box = await sandbox.open(spec())
            done = await box.exec(script, timeout_s=30)
            assert done.rc == 0, done.stderr
            layer = await box.snapshot()
            grade = await grader.grade(task, layer, attempt_dir=tmp_path / "attempt")
            layer.close()
            return grade
        finally:
            await grader.close()
            await sandbox.close()

    return asyncio.run(run())


def test_what_was_written_removed_and_installed_is_graded_over_the_image(image, tmp_path):
    script = (
        "rm gone.txt; echo own > own; mkdir -p /data; echo far > /data/f; rm -rf /srv; mkdir /srv\n"
        "printf '#!/bin/bash\\necho tool\\n' > /usr/local/bin/tool; chmod 755 /usr/local/bin/tool"
    )
    tests = (
        "assert pathlib.Path('/app/given.txt').read_text() == 'given\\n'",
        "assert not os.path.exists('/app/gone.txt')",
        "assert pathlib.Path('/app/own').exists() and pathlib.Path('/data/f').exists()",
        "assert os.listdir('/srv') == []",
        "assert subprocess.check_output(['tool']) == b'tool\\n'",
    )
    grade = grade_of(image, tmp_path, script, tests)
    assert grade.solved, grade.stdout_tail
    assert grade.flags == ()


def test_the_systems_programs_are_the_images_whatever_the_box_did_to_them(image, tmp_path):
    script = (
        "for d in /usr/bin /usr/local/bin /root/.local/bin; do mkdir -p $d\n"
        "printf '#!/bin/bash\\necho forged\\n' > $d/.f; chmod 755 $d/.f; mv $d/.f $d/cat; done\n"
        "echo /app/evil.so > /etc/ld.so.preload; echo real > own"
    )
    tests = (
        "assert subprocess.check_output(['cat', '/app/own']) == b'real\\n'",
        "assert not os.path.exists('/etc/ld.so.preload')",
    )
    assert grade_of(image, tmp_path, script, tests).solved


@pytest.mark.parametrize("top", ["app", "logs", "usr", "tmp"])
def test_a_link_in_a_directorys_place_leads_nowhere_of_the_hosts(image, tmp_path, top):
    script = f"cd /; mv /{top} /moved 2> /dev/null; ln -s /etc /{top}; exit 0"
    if top == "usr":
        script = "cp -a /usr /usr2 && PATH=/usr2/bin && rm -rf /usr/local && ln -s /etc /usr/local; exit 0"
    grade = grade_of(image, tmp_path, script, ("assert not os.path.exists('/app/passwd')", "assert True"))
    assert grade.passed == 2, grade.stdout_tail
    assert not any("passwd" in flag for flag in grade.flags)


def test_only_what_the_box_has_written_counts_as_its_disk(image):
    async def run(sandbox):
        box = await sandbox.open(spec(storage_mb=4))  # the image alone is larger
        hide = "import os\nfor place in ('/dev/written', '/dev'):\n"
        hide += "  try: os.rename(place, '/x')\n  except OSError: print('no')"
        assert (await box.exec(f'python3 -c "{hide}"', timeout_s=30)).stdout == b"no\nno\n"
        assert (await box.exec("sleep 2.5; echo here", timeout_s=30)).stdout == b"here\n"
        with pytest.raises(BoxBroken, match="its limit is 4 MB"):
            await box.exec(
                "cat /usr/bin/bash /usr/bin/bash /usr/bin/bash /usr/bin/bash > /usr/f; sleep 30", timeout_s=60
            )

    in_sandbox(run, image=image, is_overlay=True)


def test_an_overlay_without_an_image_is_refused():
    with pytest.raises(ValueError, match="an overlay needs an image"):
        BubblewrapSandbox(is_overlay=True)
    with pytest.raises(ValueError, match=r"image_root='overlay' has no effect without"):
        load_config("quickstart", ["sandbox.image_root=overlay"])
