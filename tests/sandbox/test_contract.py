"""The sandbox contract, clause by clause, for every kind of box."""

import asyncio
import functools
import itertools
import os
import tempfile
from pathlib import Path

import pytest

from t1core.sandbox.sandbox import BoxDied, SandboxUnavailable
from tests.sandbox.boxes import host_processes
from tests.sandbox.kinds import KINDS, in_kind, skip_where_unable
from tests.sandbox.test_lifetime import CancelledAt, as_coroutine
from tests.sandbox.tiny_image import make_image


@pytest.fixture(scope="module")
def tiny_image():
    with tempfile.TemporaryDirectory(prefix="t1-image-", dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        yield make_image(Path(place) / "root")


@pytest.fixture(params=KINDS)
def kind(request):
    """Runs a test's coroutine with a sandbox of each kind."""
    skip_where_unable(request.param)
    image = request.getfixturevalue("tiny_image") if request.param.endswith("an image") else None
    return functools.partial(in_kind, request.param, image=image)


def test_exec_gives_code_output_and_error_and_takes_environment_and_directory(kind):
    async def run(sandbox, spec):
        box = await sandbox.open(spec(env={"A": "1"}))
        done = await box.exec(
            'echo "$A$B"; pwd; echo err >&2; exit 7', timeout_s=30, env={"B": "2"}, cwd="/root"
        )
        assert (done.rc, done.stdout, done.stderr, done.timed_out) == (7, b"12\n/root\n", b"err\n", False)
        late = await box.exec("echo begun; sleep 55.5", timeout_s=0.5)
        assert (late.rc, late.stdout, late.timed_out) == (-9, b"begun\n", True)

    kind(run)


def test_put_and_get_carry_bytes_and_the_mode(kind, tmp_path):
    content = bytes(range(256)) * 400
    (tmp_path / "in").write_bytes(content)
    (tmp_path / "in").chmod(0o755)

    async def run(sandbox, spec):
        box = await sandbox.open(spec())
        await box.put(tmp_path / "in", "/app/deep/er/in")
        assert (await box.exec("test -x deep/er/in", timeout_s=30)).rc == 0
        await box.get("/app/deep/er/in", tmp_path / "out")
        with pytest.raises(ValueError, match="cannot read /app/none"):
            await box.get("/app/none", tmp_path / "out")

    kind(run)
    assert (tmp_path / "out").read_bytes() == content


def test_the_terminal_waits_for_the_shell_and_shows_what_is_new(kind):
    async def run(sandbox, spec):
        terminal = await (await sandbox.open(spec())).terminal()
        await terminal.incremental()
        assert await terminal.send_keys("echo one > f; cat f\n", max_wait_s=60)
        assert await terminal.incremental() == (
            "New Terminal Output:\n\nroot@box:/app# echo one > f; cat f\none\nroot@box:/app#"
        )
        assert not await terminal.send_keys("cat\n", max_wait_s=0.3)
        assert await terminal.send_keys("C-c", max_wait_s=60)

    kind(run)


def test_a_copy_holds_what_the_box_holds_now_and_the_box_lives_on(kind):
    async def run(sandbox, spec):
        box = await sandbox.open(spec(env={"A": "1"}))
        await box.exec("mkdir d; echo x > 'd/a b'; ln -s /etc/passwd l; ln 'd/a b' hard", timeout_s=30)
        await box.exec("rm -f given.txt; mkdir -p /tmp/e; chmod 0 d; (sleep 58.5 &)", timeout_s=30)
        layer = await box.copy()
        app = layer.directories["/app"]
        assert ((app / "d" / "a b").read_text(), (app / "l").is_symlink()) == ("x\n", True)
        assert (layer.workdir, layer.env) == ("/app", {"A": "1"})
        await box.exec("chmod 700 d; echo y > 'd/a b'", timeout_s=30)
        assert (app / "d" / "a b").read_text() == "x\n"
        assert (app / "hard").read_text() == "x\n" and (layer.directories["/tmp"] / "e").is_dir()
        assert host_processes("sleep 58.5") != []
        layer.close()
        await box.close()
        with pytest.raises(BoxDied):
            await box.copy()
        assert [entry.name for entry in sandbox.state_path.iterdir()] == ["etc"]

    kind(run)


def test_a_file_larger_than_an_answer_is_got_whole_and_one_larger_than_the_box_may_write_is_refused(
    kind, tmp_path
):
    async def run(sandbox, spec):
        box = await sandbox.open(spec(storage_mb=40))
        content = os.urandom(8_400_000)
        (tmp_path / "given").write_bytes(content)
        await box.put(tmp_path / "given", "/app/f")
        await box.get("/app/f", tmp_path / "f")
        assert (tmp_path / "f").read_bytes() == content
        for path, why in (("/dev/zero", "it is larger than 40 MB"), ("/app", "cannot read")):
            with pytest.raises(ValueError, match=why):
                await box.get(path, tmp_path / "none")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "given"]

    kind(run)


def test_a_snapshot_kills_the_box_and_leaves_its_files_until_the_layer_is_closed(kind):
    async def run(sandbox, spec):
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

    kind(run)


def test_close_is_idempotent_and_leaves_nothing(kind):
    async def run(sandbox, spec):
        box = await sandbox.open(spec())
        await box.exec("echo x > f; sleep 57.5 & sleep 0.1", timeout_s=30)
        await asyncio.gather(box.close(), box.close())
        await box.close()
        assert host_processes("sleep 57.5") == []
        assert [entry.name for entry in sandbox.state_path.iterdir()] == ["etc"]

    kind(run)


def test_boxes_share_nothing(kind):
    async def run(sandbox, spec):
        boxes = await asyncio.gather(*(sandbox.open(spec(f"b{i}")) for i in range(2)))
        await boxes[0].exec("echo x | cat > /app/f; cat /app/f > /tmp/f", timeout_s=30)
        done = await boxes[1].exec("ls /tmp; test -e /app/f", timeout_s=30)
        assert (done.rc, done.stdout) == (1, b"")

    kind(run)


def test_a_kind_says_when_it_holds_no_more(kind):
    async def run(sandbox, spec):
        box = await sandbox.open(spec())
        with pytest.raises(SandboxUnavailable, match=r"1 boxes .*are open in this sandbox"):
            await sandbox.open(spec("second"))
        layer = await box.snapshot()
        with pytest.raises(SandboxUnavailable, match="are open in this sandbox"):
            await sandbox.open(spec("third"))
        layer.close()
        await (await sandbox.open(spec("fourth"))).close()

    kind(run, max_boxes=1)


@pytest.mark.parametrize(
    ("name", "asked", "why"),
    [
        ("bubblewrap", {"user": "bob"}, r"agent\.user 'bob': boxes have one user"),
        ("bubblewrap", {"num_gpus": 1}, r"environment\.gpus 1: boxes see no GPU"),
        ("bubblewrap", {"docker_image": "a/b"}, "run no image; add a Dockerfile"),
        ("docker", {"docker_image": ""}, "no image: add environment/Dockerfile"),
        ("docker", {"docker_image": "none:1"}, "pull access denied for none"),
        ("docker", {"workdir": "/opt/x"}, "working directory /opt/x: what lies there is not graded"),
        ("harbor", {"docker_image": ""}, "no image: add environment/Dockerfile"),
        ("harbor", {"num_gpus": 1}, "Harbor's environment refuses it: .*GPU"),
        ("harbor", {"cpus": 0.5}, "Harbor's environment refuses it: .*cpus"),
    ],
)
def test_what_a_kind_cannot_honour_is_refused_with_the_reason(name, asked, why):
    skip_where_unable(name)

    async def run(sandbox, spec):
        with pytest.raises(ValueError, match=why):
            await sandbox.open(spec(**asked))

    in_kind(name, run, image=None)


@pytest.mark.parametrize("way", ["close", "snapshot", "copy"])
def test_a_cancellation_at_any_wait_of_an_environments_life_leaves_nothing_in_harbor(way):
    skip_where_unable("harbor")
    from tests.sandbox import harbor_environment

    async def run(sandbox, spec):
        async def life():
            box = await sandbox.open(spec())
            try:
                if way != "close":
                    (await getattr(box, way)()).close()
            finally:
                await box.close()

        await life()
        num_free = sandbox._unpacker.num_free
        for number in itertools.count(1):
            work = CancelledAt(life(), (number,))
            (outcome,) = await asyncio.gather(as_coroutine(work), return_exceptions=True)
            async with asyncio.timeout(60):
                while sandbox._boxes or harbor_environment.live or sandbox._unpacker.num_free != num_free:
                    await asyncio.sleep(0.01)
            if outcome is None:
                break
            assert isinstance(outcome, asyncio.CancelledError), outcome
        assert number > 5

    in_kind("harbor", run, image=None)
