"""Writes on a full disk and writers killed in mid-write: what was there before stays readable."""

import errno
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from t1core.store.atomic import DiskFull, append_line, drop_torn_line, naming_full_disk, write_atomic
from t1core.store.tensors import read_tensors, write_tensors

_FILL = """
import sys
from pathlib import Path
import numpy as np
from t1core.store import DiskFull, Run
from tests.store.records_by_hand import batch, trial
root = Path(sys.argv[1])
try:
    with Run.create(root, campaign="demo", run_name="full", config={}, provenance={}) as run:
        for step in range(1000):
            run.record_trajectories([trial(f"t{step}", step=step)], step=step)
            run.record_metrics({"reward/mean": 0.1}, step=step)
            made, spans = batch("a", step=step)
            run.record_tokens(made, per_token={"values": np.zeros(7, np.float32)}, spans=spans)
            run.update_status(step=step)
except DiskFull as full:
    print("DISKFULL", full)
run = Run.open(root / "demo" / "full")
status = run.status()
print("STATUS", status.state, "disk full" in status.error)
steps = run.metrics().index.tolist()
print("STEPS", status.step >= 0, steps[: status.step + 1] == list(range(status.step + 1)))
print("TRIALS", len(run.trials()) > status.step, len(run.tokens(status.step)))
print("LEFT", [p.name for p in (root / "demo" / "full").rglob("*.tmp")])
"""


def _mounts_tmpfs():
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    tried = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "t1", "/tmp"],
        capture_output=True,
    )
    return (
        None
        if tried.returncode == 0
        else f"this machine forbids a private tmpfs: {tried.stderr.decode().strip()}"
    )


def test_a_full_disk_names_the_file_and_leaves_the_run_readable_with_its_end_recorded(tmp_path):
    if reason := _mounts_tmpfs():
        pytest.skip(reason)
    mount = f'mount -t tmpfs -o size=1200k t1 {tmp_path} && exec {sys.executable} -c "$1" {tmp_path}'
    answer = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", _FILL],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    lines = dict(line.split(" ", 1) for line in answer.stdout.splitlines())
    assert lines["DISKFULL"].startswith(f"[Errno {errno.ENOSPC}] disk full: {tmp_path}/demo/full/"), (
        answer.stderr
    )
    assert "bytes and" in lines["DISKFULL"]
    assert lines["STATUS"] == "failed True"
    assert lines["STEPS"] == "True True"
    assert lines["TRIALS"] == "True 7"
    assert lines["LEFT"] == "[]"


def test_what_did_not_fit_is_still_named_in_another_process(tmp_path):
    told = DiskFull.at(tmp_path / "step_0001")
    back = pickle.loads(pickle.dumps(told))
    assert (type(back), back.errno, str(back)) == (DiskFull, errno.ENOSPC, str(told))
    assert f"{tmp_path}/step_0001 does not fit" in str(back)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("I/O error: No space left on device (os error 28)"),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    ],
)
def test_a_full_disk_is_known_by_what_a_library_makes_of_it(tmp_path, error):
    with pytest.raises(DiskFull, match="hf does not fit"), naming_full_disk(tmp_path / "hf"):
        raise error
    with pytest.raises(DiskFull, match="hf does not fit"), naming_full_disk(tmp_path / "hf"):
        try:
            raise error
        except Exception:
            raise KeyError("what came of it") from None
    with pytest.raises(ValueError, match="another"), naming_full_disk(tmp_path / "hf"):
        raise ValueError("another")


def test_a_write_that_fails_keeps_the_old_file_and_leaves_no_temporary_one(tmp_path, monkeypatch):
    path = tmp_path / "status.json"
    write_atomic(path, [b"old"])
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(DiskFull, match=r"status.json needs 3 bytes"):
        write_atomic(path, [b"n", b"ew"])
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["status.json"]
    with pytest.raises(DiskFull):
        append_line(path, "more")
    assert path.read_bytes() == b"old"


def test_only_an_unfinished_last_line_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for before, after in ((b"a\nb\nc", b"a\nb\n"), (b"a\nb\n", b"a\nb\n"), (b"abc", b""), (b"", b"")):
        path.write_bytes(before)
        drop_torn_line(path)
        assert path.read_bytes() == after


def test_every_dtype_and_shape_survives_the_tensor_file(tmp_path):
    arrays = {
        "wide": np.arange(6, dtype=np.int64).reshape(2, 3),
        "half": np.array([0.5, np.inf], dtype=np.float16),
        "flags": np.array([True, False]),
        "empty": np.zeros((0, 48, 8), dtype=np.uint8),
        "scalar": np.array(2.5, dtype=np.float32),
        "strided": np.arange(10, dtype=np.int32)[::3],
    }
    write_tensors(tmp_path / "x.safetensors", arrays, metadata={"step": "3"})
    back, metadata = read_tensors(tmp_path / "x.safetensors")
    assert metadata["step"] == "3"
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    with pytest.raises(ValueError, match="'z' has dtype complex128"):
        write_tensors(tmp_path / "y.safetensors", {"z": np.zeros(1, dtype=complex)}, metadata={})
