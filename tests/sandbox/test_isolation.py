"""What a box cannot do to its host, and what is left when it is gone."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from t1core.sandbox.sandbox import BoxDied
from tests.sandbox.boxes import host_processes, in_sandbox, spec, uid_of


def test_a_box_looks_like_root_but_runs_as_another_uid_of_the_host():
    async def run(sandbox):
        box = await sandbox.open(spec())
        done = await box.exec("id -u; whoami; hostname; pwd; sleep 41.5 & sleep 0.1", timeout_s=10)
        assert done.stdout.decode().split() == ["0", "root", "box", "/app"]
        (pid,) = host_processes("sleep 41.5")
        assert uid_of(pid) != 0
        if os.geteuid() == 0:
            assert uid_of(pid) >= 900_000

    in_sandbox(run)


def test_boxes_open_at_once_have_uids_of_their_own(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("a plain user has one uid for all boxes")

    async def run(sandbox):
        boxes = await asyncio.gather(*(sandbox.open(spec(f"b{i}")) for i in range(3)))
        for i, box in enumerate(boxes):
            await box.exec(f"sleep 42.{i} & sleep 0.1", timeout_s=10)
        assert len({uid_of(host_processes(f"sleep 42.{i}")[0]) for i in range(3)}) == 3

    in_sandbox(run)


def test_host_files_are_neither_visible_nor_writable(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("host")
    secret.chmod(0o666)

    async def run(sandbox):
        box = await sandbox.open(spec())
        done = await box.exec(
            f"cat {secret}; echo new > {secret}; touch /usr/bin/t1-was-here /etc/t1; cat /etc/shadow",
            timeout_s=10,
        )
        assert done.rc != 0
        assert b"host" not in done.stdout

    in_sandbox(run)
    assert secret.read_text() == "host"
    assert not Path("/usr/bin/t1-was-here").exists()


def test_the_environment_of_the_host_does_not_reach_a_box(monkeypatch):
    monkeypatch.setenv("HOST_TOKEN", "very-secret")

    async def run(sandbox):
        box = await sandbox.open(spec(env={"GIVEN": "yes"}))
        done = await box.exec("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'", timeout_s=10)
        assert b"GIVEN=yes" in done.stdout
        assert b"very-secret" not in done.stdout

    in_sandbox(run)


def test_a_listener_on_the_hosts_loopback_is_out_of_reach():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), 1).close()  # it does listen

        async def run(sandbox):
            box = await sandbox.open(spec())
            done = await box.exec(f"exec 3<>/dev/tcp/127.0.0.1/{port}", timeout_s=10)
            assert done.rc != 0
            assert b"refused" in done.stderr

        in_sandbox(run)


def test_namespaces_tracing_and_vsock_are_refused():
    program = (
        "import ctypes, socket, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "print('unshare', libc.unshare(0x10000000), ctypes.get_errno())\n"
        "print('ptrace', libc.ptrace(16, 1, 0, 0), ctypes.get_errno())\n"
        "print('mount', libc.mount(b'x', b'/mnt', b'tmpfs', 0, None), ctypes.get_errno())\n"
        "for family in (40, 17):\n"
        "    try: socket.socket(family, socket.SOCK_STREAM); print('open')\n"
        "    except OSError as error: print('socket', error.errno)\n"
    )

    async def run(sandbox):
        box = await sandbox.open(spec())
        done = await box.exec('python3 -c "$PROGRAM"', timeout_s=10, env={"PROGRAM": program})
        assert done.stdout.decode().splitlines() == [
            "unshare -1 1", "ptrace -1 1", "mount -1 1", "socket 97", "socket 97",
        ]  # fmt: skip

    in_sandbox(run)


def test_the_control_process_survives_what_the_agent_can_send_it():
    async def run(sandbox):
        box = await sandbox.open(spec())
        await box.exec("kill -9 1; kill -TERM 1; kill -9 -1", timeout_s=10)
        done = await box.exec("cat /proc/1/environ; cat /proc/1/fd/3 /proc/1/mem; echo alive", timeout_s=10)
        assert done.stdout == b"alive\n"
        assert done.stderr.count(b"Permission denied") == 3

    in_sandbox(run)


def test_a_daemon_that_left_its_shell_ends_with_the_box():
    async def run(sandbox):
        box = await sandbox.open(spec())
        await box.exec(
            "setsid nohup sleep 43.25 >/dev/null 2>&1 & disown; (setsid sleep 43.25 &)", timeout_s=10
        )
        await asyncio.sleep(0.2)
        assert len(host_processes("sleep 43.25")) == 2
        await box.close()
        assert host_processes("sleep 43.25") == []

    in_sandbox(run)


def test_a_fork_bomb_stays_in_its_box_and_the_neighbour_answers():
    async def run(sandbox):
        bomb, neighbour = await asyncio.gather(
            sandbox.open(spec("bomb", max_processes=40)), sandbox.open(spec("n"))
        )
        bombing = asyncio.create_task(bomb.exec("b() { b | b & }; b; sleep 2", timeout_s=2))
        await asyncio.sleep(0.5)
        done = await neighbour.exec("echo $((6 * 7))", timeout_s=20)
        assert done.stdout == b"42\n"
        await bombing
        await bomb.close()

    in_sandbox(run)


def test_endless_output_is_cut_and_its_writer_stopped():
    async def run(sandbox):
        box = await sandbox.open(spec())
        started = time.monotonic()
        done = await box.exec("yes", timeout_s=30)
        assert len(done.stdout) == 8 << 20
        assert not done.timed_out
        assert time.monotonic() - started < 20

    in_sandbox(run)


def test_a_memory_hog_and_a_large_file_hit_their_limits():
    async def run(sandbox):
        box = await sandbox.open(spec(memory_mb=256, max_file_mb=8))
        hog = await box.exec("python3 -c 'b = bytearray(1 << 29)'", timeout_s=20)
        assert b"MemoryError" in hog.stderr
        filler = await box.exec("head -c 20M /dev/zero > /app/big; stat -c %s /app/big", timeout_s=20)
        assert filler.stdout.strip() == str(8 << 20).encode()

    in_sandbox(run)


def test_boxes_die_with_a_host_that_is_killed(tmp_path):
    program = (
        "import asyncio\n"
        "from t1core.sandbox.bubblewrap import BubblewrapSandbox\n"
        "from t1core.sandbox.sandbox import BoxSpec\n"
        "async def main():\n"
        "    box = await BubblewrapSandbox().open(BoxSpec('b', None))\n"
        "    await box.exec('setsid sleep 44.75 >/dev/null 2>&1 & sleep 0.2', timeout_s=10)\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    host = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert host.stdout.readline() == b"ready\n"
        assert len(host_processes("sleep 44.75")) == 1
    finally:
        host.send_signal(signal.SIGKILL)
        host.wait()
    deadline = time.monotonic() + 10
    while host_processes("sleep 44.75") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert host_processes("sleep 44.75") == []


def test_using_a_closed_box_says_that_it_is_gone():
    async def run(sandbox):
        box = await sandbox.open(spec("b7"))
        await box.close()
        with pytest.raises(BoxDied, match="b7 is gone: it was closed"):
            await box.exec("true", timeout_s=5)

    in_sandbox(run)


def test_nothing_is_left_after_fifty_boxes():
    async def run(sandbox):
        async def life(i: int) -> None:
            box = await sandbox.open(spec(f"b{i}"))
            await box.exec("mkdir -p a/b && chmod 000 a && echo x > /tmp/y; sleep 45.5 & true", timeout_s=20)
            if i % 2:
                layer = await box.snapshot()
                layer.close()
            await box.close()

        await life(0)
        await asyncio.sleep(0)
        before = len(os.listdir("/proc/self/fd"))
        for start in range(0, 50, 5):
            await asyncio.gather(*(life(start + i) for i in range(5)))
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) == before
        assert host_processes("sleep 45.5") == []
        assert [entry.name for entry in sandbox.state_path.iterdir()] == ["etc"]

    in_sandbox(run)


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.02, 0.05, 0.1, 0.2])
def test_cancelling_at_any_stage_leaves_nothing(after_s):
    async def run(sandbox):
        async def life() -> None:
            box = await sandbox.open(spec())
            try:
                terminal = await box.terminal()
                await terminal.send_keys("sleep 46.5\n", max_wait_s=30)
            finally:
                await box.close()

        task = asyncio.create_task(life())
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert host_processes("sleep 46.5") == []
        assert [entry.name for entry in sandbox.state_path.iterdir()] == ["etc"]

    in_sandbox(run)
