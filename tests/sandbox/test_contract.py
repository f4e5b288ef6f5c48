"""The sandbox contract, clause by clause, over every system that boxes run on."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from t1core.sandbox.sandbox import BoxDied, SandboxUnavailable
from tests.sandbox.boxes import host_processes, in_sandbox, spec
from tests.sandbox.tiny_image import make_image


@pytest.fixture(scope="module")
def tiny_image():
    with tempfile.TemporaryDirectory(prefix="t1-image-", dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        yield make_image(Path(place) / "root")


@pytest.fixture(params=["the host's /usr", "an image"])
def options(request):
    """What `in_sandbox` opens."""
    return {} if request.param.startswith("the host") else {"image": request.getfixturevalue("tiny_image")}


def test_exec_gives_code_output_and_error_and_takes_environment_and_directory(options):
    async def run(sandbox):
        box = await sandbox.open(spec(env={"A": "1"}))
        done = await box.exec(
            'echo "$A$B"; pwd; echo err >&2; exit 7', timeout_s=30, env={"B": "2"}, cwd="/root"
        )
        assert (done.rc, done.stdout, done.stderr, done.timed_out) == (7, b"12\n/root\n", b"err\n", False)
        late = await box.exec("echo begun; sleep 55.5", timeout_s=0.5)
        assert (late.rc, late.stdout, late.timed_out) == (-9, b"begun\n", True)

    in_sandbox(run, **options)


def test_put_and_get_carry_bytes_and_the_mode(options, tmp_path):
    content = bytes(range(256)) * 400
    (tmp_path / "in").write_bytes(content)
    (tmp_path / "in").chmod(0o755)

    async def run(sandbox):
        box = await sandbox.open(spec())
        await box.put(tmp_path / "in", "/app/deep/er/in")
        assert (await box.exec("test -x deep/er/in", timeout_s=30)).rc == 0
        await box.get("/app/deep/er/in", tmp_path / "out")
        with pytest.raises(ValueError, match="cannot read /app/none"):
            await box.get("/app/none", tmp_path / "out")

    in_sandbox(run, **options)
    assert (tmp_path / "out").read_bytes() == content


def test_the_terminal_waits_for_the_shell_and_shows_what_is_new(options):
    async def run(sandbox):
        terminal = await (await sandbox.open(spec())).terminal()
        await terminal.incremental()
        assert await terminal.send_keys("echo one > f; cat f\n", max_wait_s=60)
        assert await terminal.incremental() == (
            "New Terminal Output:\n\nroot@box:/app# echo one > f; cat f\none\nroot@box:/app#"
        )
        assert not await terminal.send_keys("cat\n", max_wait_s=0.3)
        assert await terminal.send_keys("C-c", max_wait_s=60)

    in_sandbox(run, **options)


def test_a_snapshot_kills_the_box_and_leaves_its_files_until_the_layer_is_closed(options):
    async def run(sandbox):
        box = await sandbox.open(spec(env={"A": "1"}))
        await box.exec("echo x > f; sleep 56.5 & sleep 0.1", timeout_s=30)
        layer = await box.snapshot()
        assert host_processes("sleep 56.5") == []
        assert (layer.directories["/app"] / "f").read_text() == "x\n"
        assert (layer.workdir, layer.env) == ("/app", {"A": "1"})
        with pytest.raises(BoxDied):
            await box.exec("true", timeout_s=5)
        layer.close()
        layer.close()
        assert not layer.path.exists()

    in_sandbox(run, **options)


def test_close_is_idempotent_and_leaves_nothing(options):
    async def run(sandbox):
        box = await sandbox.open(spec())
        await box.exec("echo x > f; sleep 57.5 & sleep 0.1", timeout_s=30)
        await asyncio.gather(box.close(), box.close())
        await box.close()
        assert host_processes("sleep 57.5") == []
        assert [entry.name for entry in sandbox.state_path.iterdir()] == ["etc"]

    in_sandbox(run, **options)


def test_boxes_share_nothing(options):
    async def run(sandbox):
        boxes = await asyncio.gather(*(sandbox.open(spec(f"b{i}")) for i in range(2)))
        await boxes[0].exec("echo x | cat > /app/f; cat /app/f > /tmp/f", timeout_s=30)
        done = await boxes[1].exec("ls /tmp; test -e /app/f", timeout_s=30)
        assert (done.rc, done.stdout) == (1, b"")

    in_sandbox(run, **options)


def test_a_kind_says_what_it_cannot_hold_or_honour(options):
    async def run(sandbox):
        with pytest.raises(ValueError, match=r"agent\.user 'bob': boxes have one user"):
            await sandbox.open(spec(user="bob"))
        box = await sandbox.open(spec())
        with pytest.raises(SandboxUnavailable, match="1 boxes and layers are open"):
            await sandbox.open(spec())
        await box.close()

    in_sandbox(run, max_boxes=1, **options)
