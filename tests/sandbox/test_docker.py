"""Boxes in containers: images, owners, limits, and what a daemon says when it refuses, dies or is not there."""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from t1core.cli import app
from t1core.records import HealthCheck
from t1core.sandbox import docker_api, machine_box, machine_terminal
from t1core.sandbox.docker import OWNER, DockerSandbox
from t1core.sandbox.docker_api import DockerApi, DockerError, DockerSilent
from t1core.sandbox.healthcheck import wait_healthy
from t1core.sandbox.kinds import probe_kind
from t1core.sandbox.sandbox import CUT, BoxBroken, BoxDied, SandboxUnavailable
from t1core.verifier.grader import Grader
from tests.sandbox import docker_server
from tests.sandbox.boxes import spec
from tests.sandbox.kinds import IMAGE, in_kind
from tests.sandbox.test_lifetime import CancelledAt, as_coroutine
from tests.verifier.trials import make_task


def with_docker(test, **options):
    in_kind("docker", test, image=None, **options)


def environment(tmp_path, *lines):
    directory = tmp_path / "environment"
    directory.mkdir()
    (directory / "given.txt").write_text("given\n")
    (directory / "Dockerfile").write_text("\n".join(lines) + "\n")
    return directory


def test_a_dockerfile_is_built_once_and_its_directory_and_environment_are_the_boxs(tmp_path):
    directory = environment(
        tmp_path, "FROM org/base", "WORKDIR /srv/work", "ENV COLOR=blue", "COPY given.txt ."
    )

    async def run(sandbox, _):
        boxes = await asyncio.gather(
            *(sandbox.open(spec(f"b{i}", environment_dir=directory, env={"MODE": "x"})) for i in range(2))
        )
        for box in boxes:
            done = await box.exec('echo "$COLOR $MODE"; pwd; cat given.txt', timeout_s=30)
            assert done.stdout == b"blue x\n/srv/work\ngiven\n"
        assert sum(request == ("POST", "/build") for request in sandbox.server.requests) == 1
        await boxes[0].exec("echo own > own; mkdir -p /data; echo far > /data/f", timeout_s=30)
        layer = await boxes[0].snapshot()
        assert (layer.workdir, layer.env["COLOR"], layer.env["MODE"]) == ("/srv/work", "blue", "x")
        assert (layer.directories["/srv"] / "work/own").read_text() == "own\n"
        layer.close()
        with pytest.raises(ValueError, match=r"Docker: .*SHELL"):
            (directory / "Dockerfile").write_text('FROM a\nSHELL ["zsh"]\n')
            await sandbox.open(spec(environment_dir=directory))
        await boxes[1].close()
        assert sandbox.server.containers == {}

    with_docker(run)


def test_what_a_container_leaves_is_graded_like_any_box(tmp_path):
    tests = "import pathlib\ndef test_a(): assert pathlib.Path('/app/out').read_text() == 'done\\n'\n"
    task = make_task(tmp_path / "task", tests=tests, test_names=("test_outputs.py::test_a",))

    async def run(sandbox, _):
        grader = Grader()
        try:
            await grader.start()
            box = await sandbox.open(spec(docker_image=IMAGE))
            await box.exec("echo done > out; ln -s /etc/passwd stolen; mkfifo pipe", timeout_s=30)
            layer = await box.snapshot()
            grade = await grader.grade(task, layer, attempt_dir=tmp_path / "attempt")
            layer.close()
            assert grade.solved, grade.stdout_tail
            assert grade.flags == ("special-file:/app/pipe",)
        finally:
            await grader.close()

    with_docker(run)


def test_a_container_is_asked_for_with_its_limits():
    async def run(sandbox, _):
        asked = spec(docker_image=IMAGE, memory_mb=300, max_processes=40, cpus=0.5, num_gpus=1)
        await sandbox.open(asked)
        (container,) = sandbox.server.containers.values()
        limits = container.asked["HostConfig"]
        assert limits["NetworkMode"] == "none"
        assert (limits["Memory"], limits["MemorySwap"]) == (300 << 20, 300 << 20)
        assert (limits["PidsLimit"], limits["NanoCpus"]) == (40, 500_000_000)
        assert limits["DeviceRequests"] == [{"Driver": "", "Count": 1, "Capabilities": [["gpu"]]}]
        assert (limits["CapDrop"], limits["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
        assert container.asked["Labels"] == {OWNER: f"{socket.gethostname()}:{os.getpid()}"}

    with_docker(run)


@pytest.mark.parametrize(
    ("oom_killed", "why"), [(False, "is not running"), (True, "used more memory than it may")]
)
def test_a_container_that_ended_is_its_own_doing(oom_killed, why):
    async def run(sandbox, _):
        box = await sandbox.open(spec(docker_image=IMAGE))
        (container,) = sandbox.server.containers.values()
        container.layer, container.oom_killed = await container.box.snapshot(), oom_killed
        with pytest.raises(BoxBroken, match=why):
            await box.exec("true", timeout_s=10)
        layer = await box.snapshot()
        assert "/app" in layer.directories
        layer.close()

    with_docker(run)


def test_a_container_that_the_daemon_lost_is_the_sandboxs_failure():
    async def run(sandbox, _):
        box = await sandbox.open(spec(docker_image=IMAGE))
        sandbox.server.containers.clear()
        with pytest.raises(BoxDied, match="No such container"):
            await box.exec("true", timeout_s=10)

    with_docker(run)


def test_a_stopped_terminal_is_the_boxs_own_doing(monkeypatch):
    monkeypatch.setattr(machine_terminal, "CONTROL_DEADLINE_S", 2.0)

    async def run(sandbox, _):
        box = await sandbox.open(spec(docker_image=IMAGE))
        terminal = await box.terminal()
        with pytest.raises(BoxBroken, match="and it answers otherwise"):
            await terminal.send_keys("kill -STOP $PPID\n", max_wait_s=0.5)
            await terminal.send_keys("echo here\n", max_wait_s=0.5)
        (await box.snapshot()).close()

    with_docker(run)


@pytest.mark.parametrize(
    "attack", ["rm -rf /tmp/.t1-tmux", "ln -sfn /dev/full /tmp; chmod 0 /tmp", "kill -9 -1"]
)
def test_an_agent_that_breaks_its_containers_tools_is_judged_by_what_it_leaves(attack):
    async def run(sandbox, _):
        box = await sandbox.open(spec(docker_image=IMAGE))
        await box.exec("echo kept > kept", timeout_s=30)
        terminal = await box.terminal()
        with contextlib.suppress(BoxBroken):
            await terminal.send_keys(attack + "\n", max_wait_s=1)
            await terminal.send_keys("echo here\n", max_wait_s=1)
            await terminal.incremental()
        layer = await box.snapshot()
        assert (layer.directories["/app"] / "kept").read_text() == "kept\n"
        layer.close()

    with_docker(run)


def test_more_than_a_box_may_leave_is_cut_and_graded_as_it_is():
    async def run(sandbox, _):
        box = await sandbox.open(spec(docker_image=IMAGE, storage_mb=10))
        with contextlib.suppress(BoxBroken):  # where it is looked at before its end
            await box.exec("echo kept > kept; head -c 30M /dev/zero > /tmp/f", timeout_s=60)
        layer = await box.snapshot()
        assert (layer.directories["/app"] / "kept").read_text() == "kept\n"
        assert layer.flags == (CUT,)
        layer.close()

    with_docker(run)


def test_the_images_own_files_are_no_part_of_what_a_box_may_write(tmp_path):
    directory = environment(
        tmp_path, "FROM org/base", "WORKDIR /work", "RUN head -c 20M /dev/zero > /tmp/given"
    )

    async def run(sandbox, _):
        box = await sandbox.open(spec(environment_dir=directory, storage_mb=5))
        await box.exec("echo kept > kept", timeout_s=30)
        layer = await box.snapshot()
        assert (layer.directories["/work"] / "kept").read_text() == "kept\n"
        assert (layer.directories["/tmp"] / "given").stat().st_size == 20 << 20 and layer.flags == ()
        layer.close()

    with_docker(run)


def test_a_box_that_writes_too_much_is_ended_while_it_runs_and_graded_as_it_is(monkeypatch):
    monkeypatch.setattr(machine_box, "LOOK_EVERY_S", 0.0)

    async def run(sandbox, _):
        box = await sandbox.open(spec(docker_image=IMAGE, storage_mb=10))
        await box.exec("echo kept > kept; head -c 3M /dev/zero > /tmp/f", timeout_s=60)
        with pytest.raises(BoxBroken, match=r"has written 3\d MB, its limit is 10 MB"):
            await box.exec("head -c 30M /dev/zero > /tmp/g", timeout_s=60)
        with pytest.raises(BoxBroken, match="its limit is 10 MB"):  # for good, whatever is removed
            await box.exec("rm /tmp/g", timeout_s=60)
        layer = await box.snapshot()
        assert (layer.directories["/app"] / "kept").read_text() == "kept\n"
        layer.close()

    with_docker(run)


@pytest.mark.parametrize(
    ("asked", "of_image", "ran_as", "home"),
    [
        ("", "", "root", "/root"),
        ("bob", "", "bob", "/srv/bob"),
        ("1001", "", "1001", "/"),
        ("", "bob", "bob", "/srv/bob"),
        ("root", "bob", "root", "/root"),
    ],
)
def test_commands_run_as_the_tasks_user_else_the_images_in_that_ones_home(asked, of_image, ran_as, home):
    async def run(sandbox, _):
        sandbox.server.users["bob"] = (1000, "/srv/bob")
        if of_image:
            sandbox.server.image_users[IMAGE] = of_image
        box = await sandbox.open(spec(docker_image=IMAGE, user=asked))
        sandbox.server.ran_as.clear()
        done = await box.exec('echo "$HOME"', timeout_s=60)
        assert (done.stdout.decode(), set(sandbox.server.ran_as)) == (f"{home}\n", {ran_as})

    with_docker(run)


def test_a_user_that_the_image_does_not_have_is_the_tasks_fault():
    async def run(sandbox, _):
        with pytest.raises(ValueError, match="unable to find user eve"):
            await sandbox.open(spec(docker_image=IMAGE, user="eve"))
        assert sandbox.server.containers == {}

    with_docker(run)


def test_an_images_entrypoint_is_started_beside_the_first_process_which_nothing_it_does_can_end(tmp_path):
    directory = environment(
        tmp_path,
        *("FROM org/base", "WORKDIR /work", "COPY given.txt .", 'CMD ["never"]'),
        'ENTRYPOINT ["bash", "-c", "cat given.txt > /tmp/up; exec \\"$@\\"", "start"]',
    )

    async def run(sandbox, _):
        box = await sandbox.open(spec(environment_dir=directory))
        await wait_healthy(box, HealthCheck("grep given /tmp/up", interval_s=0.1, retries=300))
        (container,) = sandbox.server.containers.values()
        assert container.asked["Entrypoint"][:2] == ["bash", "-c"] and container.asked["Cmd"] == []
        assert (await box.exec("pkill -xf 'sleep infinity'; sleep 0.1", timeout_s=60)).rc == 0
        assert container.is_up

    with_docker(run)


def test_a_container_whose_first_process_ends_is_gone():
    async def run(sandbox, _):
        sandbox.server.images[IMAGE] = None
        box = await sandbox.open(spec(docker_image=IMAGE))
        (container,) = sandbox.server.containers.values()
        container.main.cancel()
        with pytest.raises(BoxBroken, match="is not running"):
            await box.exec("true", timeout_s=60)

    with_docker(run)


def test_a_container_stands_still_while_it_is_copied_and_goes_on_after_a_failure():
    async def run(sandbox, _):
        server = sandbox.server
        box = await sandbox.open(spec(docker_image=IMAGE))
        (await box.copy()).close()
        orders = [path.rpartition("/")[2] for method, path in server.requests if method == "POST"]
        assert [what for what in orders if what in ("pause", "unpause")] == ["pause", "unpause"]
        (container,) = server.containers.values()
        assert not container.is_paused

        def lost(*_):
            assert container.is_paused
            raise docker_server.Refused(500, "no disk")

        server._read = lost
        with pytest.raises(BoxDied, match="no disk"):
            await box.copy()
        assert not container.is_paused and (await box.exec("true", timeout_s=60)).rc == 0

    with_docker(run)


def test_a_box_that_fills_the_root_with_directories_keeps_what_it_had():
    async def run(sandbox, _):
        box = await sandbox.open(spec(docker_image=IMAGE))
        await box.exec("echo kept > kept", timeout_s=30)
        await box.exec("cd /; for i in $(seq 700); do mkdir $(printf '%0150d' $i) d$i; done", timeout_s=60)
        layer = await box.snapshot()
        assert len(layer.directories) <= 48
        assert (layer.directories["/app"] / "kept").read_text() == "kept\n"
        layer.close()

    with_docker(run)


def test_an_image_without_a_tag_is_fetched_as_the_latest_alone():
    async def run(sandbox, _):
        sandbox.server.images.clear()
        for name in ("org/a", "host:5000/b", "org/c:1", "org/d@sha256:0"):
            await (await sandbox.open(spec(docker_image=name))).close()
        fetched = [query.get("tag") for path, query in sandbox.server.queries if path == "/images/create"]
        assert fetched == ["latest", "latest", None, None]

    with_docker(run)


def test_a_daemon_that_never_answers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(docker_api, "CONNECT_DEADLINE_S", 0.3)
    path = tmp_path / "docker.sock"

    async def run():
        async def silent(reader, writer):
            await reader.read()

        server = await asyncio.start_unix_server(silent, path)
        with pytest.raises(DockerSilent, match=r"did not answer within 0\.3 s"):
            await DockerApi(path).connect()
        server.close()

    asyncio.run(run())


def test_endless_output_is_cut_and_its_writer_stopped():
    async def run(sandbox, _):
        box = await sandbox.open(spec(docker_image=IMAGE))
        done = await box.exec("yes; echo never", timeout_s=100)
        assert (len(done.stdout), done.timed_out) == (1 << 20, False)
        assert done.stdout.startswith(b"y\ny\n") and done.rc != 0

    with_docker(run)


def test_containers_of_a_process_that_is_gone_are_removed():
    async def run(sandbox, _):
        server = sandbox.server
        for label in (
            f"{socket.gethostname()}:{2**22 + 1}",
            "elsewhere:1",
            f"{socket.gethostname()}:{os.getpid()}",
        ):
            asked = {"Image": IMAGE, "Labels": {OWNER: label}, "Env": [], "HostConfig": {}}
            server._create(asked)
        await (await sandbox.open(spec(docker_image=IMAGE))).close()
        left = [container.asked["Labels"][OWNER] for container in server.containers.values()]
        assert left == ["elsewhere:1", f"{socket.gethostname()}:{os.getpid()}"]

    with_docker(run)


@pytest.mark.parametrize("way", ["close", "snapshot", "copy"])
def test_a_cancellation_at_any_wait_of_a_containers_life_leaves_nothing(way):
    async def life(sandbox):
        box = await sandbox.open(spec(docker_image=IMAGE))
        try:
            if way != "close":
                (await getattr(box, way)()).close()
        finally:
            await box.close()

    async def run(sandbox, _):
        await life(sandbox)
        num_free = sandbox._unpacker.num_free
        for number in itertools.count(1):
            work = CancelledAt(life(sandbox), (number,))
            (outcome,) = await asyncio.gather(as_coroutine(work), return_exceptions=True)
            async with asyncio.timeout(60):
                while sandbox._boxes or sandbox.server.containers or sandbox._unpacker.num_free != num_free:
                    await asyncio.sleep(0.01)
            if outcome is None:
                break
            assert isinstance(outcome, asyncio.CancelledError), outcome
        assert number > 20

    with_docker(run)


def test_no_daemon_and_one_that_hangs_up_are_said(tmp_path, monkeypatch):
    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    (problem,) = probe_kind("docker").problems
    assert (
        problem.what.startswith(f"no Docker daemon answers at {path}")
        and "start a Docker daemon" in problem.fix
    )
    assert "no Docker daemon answers" in CliRunner().invoke(app, ["doctor"]).stdout

    async def run():
        async def hang_up(reader, writer):
            await reader.readline()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort")
            writer.close()

        sandbox = DockerSandbox(max_boxes=2, path=path)
        try:
            with pytest.raises(SandboxUnavailable, match="no Docker daemon answers"):
                await sandbox.open(spec(docker_image=IMAGE))
            server = await asyncio.start_unix_server(hang_up, path)
            with pytest.raises(
                SandboxUnavailable, match=r"hung up on GET /_ping: ValueError\('the answer ends early'\)"
            ):
                await sandbox.open(spec(docker_image=IMAGE))
            server.close()
        finally:
            await sandbox.close()

    asyncio.run(run())


def test_the_client_reads_lengths_chunks_and_errors():
    async def run(sandbox, _):
        api = DockerApi(sandbox.server.path)
        assert await api.connect() == "1.47"
        assert (await api.call("GET", "/info"))["NCPU"] == 2
        with pytest.raises(DockerError, match=r"Docker: No such container: x \(404\)"):
            await api.call("GET", "/containers/x/json")
        assert sandbox.server.requests[-1] == ("GET", "/containers/x/json")
        await sandbox.open(spec(docker_image=IMAGE))
        (container,) = sandbox.server.containers
        command = {"Cmd": ["bash", "-c", "echo out; echo err >&2; seq 9999"]}
        made = await api.call("POST", f"/containers/{container}/exec", body=command)
        output = await api.output(made["Id"])
        assert (output[:6], output[-5:], b"err" in output) == (b"out\n1\n", b"9999\n", False)
        with pytest.raises(DockerSilent):
            await DockerApi(Path("/nowhere")).connect()

    with_docker(run)


@pytest.mark.skipif(not shutil.which("docker"), reason="Docker's command line is not installed")
def test_dockers_own_command_line_is_at_home_with_the_server_of_these_tests(tmp_path):
    async def run(sandbox, _):
        async def docker(*words):
            process = await asyncio.create_subprocess_exec(
                "docker", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{sandbox.server.path}"},
            )  # fmt: skip
            out, err = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 0, err.decode()
            return out.decode()

        box = await sandbox.open(spec(docker_image=IMAGE))
        (container,) = sandbox.server.containers
        assert json.loads(await docker("version", "--format", "{{json .Server}}"))["ApiVersion"] == "1.47"
        assert (
            await docker("exec", "-e", "A=1", container, "sh", "-c", "echo $A > f; cat f; pwd") == "1\n/app\n"
        )
        (tmp_path / "in").write_text("in\n")
        await docker("cp", str(tmp_path / "in"), f"{container}:/app/in")
        assert (await box.exec("cat in", timeout_s=30)).stdout == b"in\n"
        await docker("cp", f"{container}:/app/f", str(tmp_path / "f"))
        assert (tmp_path / "f").read_text() == "1\n"

    with_docker(run)
