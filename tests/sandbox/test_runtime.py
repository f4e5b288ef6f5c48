"""The runtime that boxes and graders share."""

import importlib.metadata
import os
import subprocess
from pathlib import Path

import pytest

from t1core.sandbox.runtime import ensure_runtime, install_payload, payload_argv
from t1core.sandbox.seccomp import program


def test_the_runtime_works_away_from_this_environment_and_everyone_can_read_it():
    runtime = ensure_runtime()
    code = "import sys, ssl, sqlite3, pytest, ctrf; print(sys.prefix); print(pytest.__file__)"
    done = subprocess.run(
        [runtime / "bin/python3", "-I", "-c", code], capture_output=True, text=True, env={}, check=True
    )
    prefix, origin = done.stdout.splitlines()
    assert Path(prefix) == runtime
    assert Path(origin).is_relative_to(runtime)
    for directory, _, names in os.walk(runtime):
        assert os.stat(directory).st_mode & 0o005 == 0o005, directory
        for name in names:
            assert os.lstat(os.path.join(directory, name)).st_mode & 0o004, name


def test_building_again_changes_nothing_and_a_chosen_place_is_used(monkeypatch):
    runtime = ensure_runtime()
    stamp = (runtime / "bin" / "python3").lstat().st_mtime_ns
    assert ensure_runtime() == runtime
    assert (runtime / "bin" / "python3").lstat().st_mtime_ns == stamp
    monkeypatch.setenv("T1CORE_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("T1CORE_STATE_DIR", "/nowhere")
    assert ensure_runtime() == runtime


@pytest.mark.parametrize(
    ("lost", "said"), [("py.py", "No module named 'py'"), ("entry_points.txt", "its help has no --ctrf")]
)
def test_a_runtime_whose_pytest_cannot_start_is_refused_and_not_kept(monkeypatch, tmp_path, lost, said):
    listed = importlib.metadata.files
    monkeypatch.setattr(
        importlib.metadata, "files", lambda name: [file for file in listed(name) if file.name != lost]
    )
    monkeypatch.setenv("T1CORE_STATE_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=f"pytest does not work: .*{said}"):
        ensure_runtime()
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_a_payload_runs_under_the_runtimes_python_alone():
    runtime = ensure_runtime()
    payload = install_payload(runtime, ["t1core.sandbox.inbox.wire"])
    argv = payload_argv(str(runtime), payload, "t1core.sandbox.inbox.wire")
    argv[-1] = argv[-1].replace("import main; main()", "import pack; print(pack(b'ab'))")
    done = subprocess.run(argv, capture_output=True, text=True, env={}, cwd="/", check=True)
    assert done.stdout == "b'\\x02\\x00\\x00\\x00ab'\n"


def test_seccomp_jumps_stay_inside_the_program():
    for machine in ("x86_64", "aarch64"):
        code = program(machine)
        rows = [code[i : i + 8] for i in range(0, len(code), 8)]
        for at, row in enumerate(rows):
            if row[0] & 0x07 == 0x05:  # a jump
                assert at + 1 + max(row[2], row[3]) < len(rows)
        assert rows[-1][0] == 0x06  # a return
