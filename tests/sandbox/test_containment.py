"""What a box tries and does not get: the host's files, other processes, more than its limits. Loads are small and end
by themselves."""

import contextlib
import os
import socket
from pathlib import Path

import pytest

from t1core.sandbox.inbox import watch
from t1core.sandbox.sandbox import BoxBroken
from t1core.sandbox.state import remove_tree
from tests.sandbox.boxes import host_processes, in_sandbox, spec


async def python(box, program: str, **options):
    """Run a Python program in a box; its standard output, line by line."""
    done = await box.exec('python3 -c "$PROGRAM"', timeout_s=60, env={"PROGRAM": program}, **options)
    assert done.rc == 0, done.stderr
    return done.stdout.decode().splitlines()


def test_the_kernels_switches_and_devices_are_out_of_reach():
    program = (
        "import os\n"
        "for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/sys/kernel/hostname',\n"
        "             '/proc/sys/vm/drop_caches', '/dev/mem', '/dev/kmsg', '/dev/sda', '/dev/vda', '/dev/kvm',\n"
        "             '/sys/kernel/uevent_helper', '/usr/x', '/etc/x', '/opt/t1/bin/python3'):\n"
        "    try: open(path, 'w').close(); print('opened', path)\n"
        "    except OSError: pass\n"
        "for kind in (0o020000, 0o060000):\n"
        "    try: os.mknod('/app/device', kind | 0o666, os.makedev(1, 1)); print('made a device')\n"
        "    except OSError: pass\n"
        "print('done', os.path.exists('/sys/kernel'))\n"
    )

    async def run(sandbox):
        box = await sandbox.open(spec())
        lines = await python(box, program)
        assert lines == ["done False"]

    in_sandbox(run)


def test_new_namespaces_are_refused_by_every_call_that_makes_them():
    program = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(*words):\n"
        "    result = libc.syscall(*(ctypes.c_long(word) for word in words))\n"
        "    if result == 0 and words[0] == CLONE: os._exit(0)\n"
        "    print(result, ctypes.get_errno())\n"
        "CLONE, CLONE3, SETNS = {'x86_64': (56, 435, 308), 'aarch64': (220, 435, 268)}[os.uname().machine]\n"
        "for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000):\n"
        "    call(CLONE, flag | 17, 0, 0, 0, 0)\n"
        "call(CLONE3, 0, 0)\ncall(SETNS, os.open('/proc/self/ns/net', os.O_RDONLY), 0)\n"
    )

    async def run(sandbox):
        box = await sandbox.open(spec())
        assert await python(box, program) == ["-1 1"] * 7 + ["-1 38", "-1 1"]
        done = await box.exec("unshare -r true || unshare -m true", timeout_s=20)
        assert done.rc != 0

    in_sandbox(run)


def test_one_process_of_a_box_cannot_trace_or_read_another():
    program = (
        "import ctypes, os, signal, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "child = os.fork()\n"
        "if child == 0: time.sleep(20); os._exit(0)\n"
        "for request in (16, 0x4206): print(libc.ptrace(request, child, 0, 0), ctypes.get_errno())\n"
        "buffer = ctypes.create_string_buffer(8)\n"
        "vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)\n"
        "print(libc.process_vm_readv(child, vector, 1, vector, 1, 0), ctypes.get_errno())\n"
        "os.kill(child, signal.SIGKILL)\n"
    )

    async def run(sandbox):
        box = await sandbox.open(spec())
        assert await python(box, program) == ["-1 1"] * 3

    in_sandbox(run)


def test_no_descriptor_of_the_host_is_open_in_a_command():
    async def run(sandbox):
        box = await sandbox.open(spec())
        assert await python(box, "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])") == [
            "[0, 1, 2]"
        ]
        links = await python(
            box, "import os; print([os.readlink(f'/proc/self/fd/{n}')[:5] for n in range(3)])"
        )
        assert links == ["['/dev/', 'pipe:', 'pipe:']"]

    in_sandbox(run)


def test_the_hosts_processes_and_abstract_sockets_do_not_exist_in_a_box():
    name = f"\0t1core-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(name)  # it does listen
        program = (
            "import os, socket, sys\n"
            f"try: socket.socket(socket.AF_UNIX).connect('\\0t1core-{os.getpid()}'); print('connected')\n"
            "except ConnectionRefusedError: print('refused')\n"
            "print(max(int(name) for name in os.listdir('/proc') if name.isdigit()) < 100)\n"
        )

        async def run(sandbox):
            box = await sandbox.open(spec())
            assert await python(box, program) == ["refused", "True"]

        in_sandbox(run)


def test_a_box_cannot_raise_its_own_limits():
    program = (
        "import resource\n"
        "for name in ('NPROC', 'DATA', 'FSIZE', 'NOFILE', 'CORE'):\n"
        "    which = getattr(resource, 'RLIMIT_' + name); soft, hard = resource.getrlimit(which)\n"
        "    try: resource.setrlimit(which, (hard + 1, hard + 1)); print('raised', name)\n"
        "    except (ValueError, PermissionError): print(soft == hard)\n"
    )

    async def run(sandbox):
        box = await sandbox.open(spec())
        assert await python(box, program) == ["True"] * 5

    in_sandbox(run)


def test_a_memory_bomb_of_many_small_processes_is_spared_one_by_one():
    bomb = (
        "for i in 1 2 3 4 5 6; do python3 -c 'b = bytearray(40 << 20); import time; time.sleep(5)' & done\n"
        "lost=0; for job in $(jobs -p); do wait $job || lost=$((lost + 1)); done; echo $lost"
    )

    async def run(sandbox):
        box = await sandbox.open(spec(memory_mb=150))
        done = await box.exec(bomb, timeout_s=60)
        assert 3 <= int(done.stdout) <= 5  # three of 48 MB fit at most
        assert (await box.exec("echo alive", timeout_s=20)).stdout == b"alive\n"

    in_sandbox(run)


@pytest.mark.parametrize(
    ("way", "why"),
    [
        (
            "import os, time\nos.chdir('/app')\n"
            "for _ in range(600): os.mkdir('deeper'); os.chdir('deeper')\n"
            "open('filler', 'wb').write(bytes(4 << 20)); time.sleep(30)",
            "nested directories deeper than a path may be long",
        ),
        (
            "import os, time\nfor i in range(9000): os.close(os.open(f'/tmp/{i}', os.O_CREAT))\ntime.sleep(30)",
            r"has written \d+ MB, its limit is 4 MB",
        ),
    ],
    ids=["below the longest path", "with empty files"],
)
def test_a_disk_filler_that_hides_from_the_count_is_found(way, why):
    async def run(sandbox):
        box = await sandbox.open(spec(storage_mb=4))
        with pytest.raises(BoxBroken, match=why):
            await box.exec('python3 -c "$PROGRAM"', timeout_s=60, env={"PROGRAM": way})
        await box.close()
        assert [entry.name for entry in sandbox.state_path.iterdir()] == ["etc"]

    in_sandbox(run)


def test_a_file_that_goes_while_it_is_counted_hides_no_other(tmp_path, monkeypatch):
    (tmp_path / "filler").write_bytes(bytes(1 << 20))
    real = os.scandir

    class Gone:
        name, path = "gone", str(tmp_path / "gone")

        def stat(self, *, follow_symlinks):
            raise FileNotFoundError

        def is_dir(self, *, follow_symlinks):
            return False

    @contextlib.contextmanager
    def scandir(path):
        with real(path) as entries:
            yield [Gone(), *entries]

    monkeypatch.setattr(watch.os, "scandir", scandir)
    assert list(watch._bytes_written((str(tmp_path),)))[-1] >= 1 << 20


def test_links_in_a_layer_lead_to_nothing_of_the_hosts(tmp_path):
    secret, folder = tmp_path / "secret.txt", tmp_path / "folder"
    secret.write_text("host")
    secret.chmod(0o640)
    folder.mkdir()
    (folder / "kept").write_text("kept")

    async def run(sandbox):
        box = await sandbox.open(spec())
        done = await box.exec(
            f"ln -s {secret} /app/file; ln -s {folder} /app/folder; ln -s / /tmp/root; ln -s /app /app/self\n"
            "ln /usr/bin/env /app/hard || ln /etc/passwd /app/hard || ln /opt/t1/bin/python3 /app/hard || echo none\n"
            "echo own > /app/own; ln /app/own /tmp/own || ln /app/own /app/twin; chmod -R 000 /tmp",
            timeout_s=20,
        )
        assert b"none\n" in done.stdout
        layer = await box.snapshot()
        assert (layer.directories["/app"] / "twin").read_text() == "own\n"
        layer.close()
        assert not layer.path.exists()

    in_sandbox(run)
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("host", 0o640)
    assert [entry.name for entry in folder.iterdir()] == ["kept"]


def test_a_copy_into_a_box_stays_in_it_when_directories_are_links(tmp_path):
    (tmp_path / "new.txt").write_text("new")
    (tmp_path / "inside").mkdir()

    async def run(sandbox):
        box = await sandbox.open(spec())
        await box.exec(
            f"ln -s {tmp_path}/inside /app/out; ln -s /proc/1/root{tmp_path} /app/up", timeout_s=20
        )
        for target in ("/app/out/new.txt", "/app/up/new.txt", "/proc/1/root/etc/new.txt"):
            with pytest.raises(ValueError, match="cannot write"):
                await box.put(tmp_path / "new.txt", target)
        with pytest.raises(ValueError, match="cannot read"):
            await box.get("/proc/1/environ", tmp_path / "got.txt")

    in_sandbox(run)
    assert list((tmp_path / "inside").iterdir()) == []
    assert not (tmp_path / "got.txt").exists()


def test_a_tree_of_any_depth_and_with_any_names_is_removed(tmp_path):
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    tree.mkdir()
    (tree / "link").symlink_to(outside)
    os.mkdir(os.fsencode(tree) + b"/\xff\n")
    (tree / "closed" / "inner").mkdir(parents=True)
    (tree / "closed").chmod(0)
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tree)
        for _ in range(1200):
            os.mkdir("deeper")
            os.chdir("deeper")
        Path("leaf").write_text("x")
    finally:
        os.fchdir(here)
        os.close(here)
    before = len(os.listdir("/proc/self/fd"))
    remove_tree(tree)
    remove_tree(tree)  # missing is fine
    assert not tree.exists()
    assert (outside / "kept").read_text() == "kept"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_daemon_that_forks_without_end_ends_with_its_box():
    respawn = (
        "import os, time\nos.setsid()\nwhile True:\n    if os.fork(): os._exit(0)\n    time.sleep(0.01)\n"
    )

    async def run(sandbox):
        box = await sandbox.open(spec(max_processes=16))
        await box.exec('python3 -c "$PROGRAM" >/dev/null 2>&1 &', timeout_s=20, env={"PROGRAM": respawn})
        await box.exec("sleep 53.5 & sleep 0.2", timeout_s=20)
        layer = await box.snapshot()
        assert host_processes("sleep 53.5") == []
        left = [
            entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _uid(entry) == layer.uid
        ]
        assert left == [] or os.geteuid() != 0
        layer.close()

    in_sandbox(run)


def _uid(process: Path) -> int:
    try:
        return process.stat().st_uid
    except OSError:
        return -1
