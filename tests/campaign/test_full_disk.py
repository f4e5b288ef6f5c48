"""A disk that fills up: the campaign ends as failed, says so in its run, and no line that does not fit stops it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import nbformat
import pytest
from filled_disk import Case

_CAMPAIGN = """
import sys
from pathlib import Path
from t1core.campaign import campaign
from t1core.config import load_config
from t1core.store import Run

async def fill(config, assets, pool, run, log, *_):
    run.record_metrics({"reward/mean": 0.5}, step=0)
    run.update_status(step=0)
    with (run.path / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    for _ in range(3):
        log("x" * 9000)
    for step in range(1, 1000):
        run.record_metrics({"reward/mean": 0.5}, step=step)

campaign._run = fill
sys.stdout = (Path(sys.argv[1]) / "out.log").open("w", buffering=1)
sys.argv = ["t1", "campaign", "smoke", "--run-name", "full", *sys.argv[2:]]
from t1core import cli
cli.main()
"""


def _refusal():
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    mount = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "t1", "/tmp"]
    tried = subprocess.run(mount, capture_output=True, text=True)
    return f"this machine forbids a private tmpfs: {tried.stderr.strip()}" if tried.returncode else None


def test_a_campaign_on_a_full_disk_ends_as_failed_and_its_records_stay_readable(tmp_path, actor, pool):
    if reason := _refusal():
        pytest.skip(reason)
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    kept.mkdir()
    settings = [
        f"model.actor_path={actor}", f"tasks.pool={pool}", "tasks.startup_sample=0",
        f"run_root={disk}", "cluster.min_free_memory_mb=0", "cluster.min_free_disk_mb=0",
    ]  # fmt: skip
    words = " ".join(f"--set '{setting}'" for setting in settings)
    # The checks need boxes, which an inner user namespace may not give; the disk is what is under test.
    code = (
        "from t1core.campaign import preflight\npreflight.check_machine = lambda config: None\n" + _CAMPAIGN
    )
    script = (
        f'mount -t tmpfs -o size=1500k t1 {disk} && {sys.executable} -c "$1" {disk} {words}; code=$?; '
        f"rm -f {disk}/smoke/full/filler; cp -r {disk}/smoke/full {kept}/; exit $code"
    )
    answer = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", code],
        capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    from t1core.store import Run

    run = Run.open(kept / "full")
    status = run.status()
    assert status.state == "failed", answer.stderr[-2000:]
    assert "DiskFull: [Errno 28] disk full" in status.error
    assert run.metrics().index.tolist()[0] == 0
    assert answer.returncode in (2, 120)  # 120: Python could not flush its output at the end
    assert "Traceback" not in answer.stderr
    assert answer.stderr.splitlines()[0].startswith("t1: [Errno 28] disk full")


ACTOR_FAILS = ("agent.agent_timeout_s=0.01",)
# By what is being written when the disk fills up; with what the error must name.
ARTEFACTS = {
    "config": (Case(r"/\.config\.json"), "config.json"),
    "provenance": (Case(r"/\.provenance\.json"), "provenance.json"),
    "plan": (Case(r"/\.plan\.json"), "plan.json"),
    "reserve": (Case(r"/\.\.reserve"), ".reserve"),
    "first_status": (Case(r"/\.status\.json"), "status.json"),
    "vocabulary": (Case(r"/\.vocabulary\.json"), "vocabulary.json"),
    "parts": (Case(r"/\.parts\.json"), "parts.json"),
    "log": (Case(r"/driver\.log"), "vocabulary.json"),  # a line is no reason to end; what comes after it is
    "live": (Case(r"/\.live\.json"), "status.json"),  # nor is what is told of trials in flight
    "evaluated": (Case(r"/\.eval_0000\.parquet"), "eval_0000.parquet"),
    "scores": (Case(r"/scores\.jsonl"), "scores.jsonl"),
    "trials": (Case(r"/\.train_0001\.parquet"), "train_0001.parquet"),
    "failures": (Case(r"/failures\.jsonl", overrides=ACTOR_FAILS), "failures.jsonl"),
    "survival": (Case(r"/survival\.jsonl"), "survival.jsonl"),
    "tokens": (Case(r"/\.step_0000\.safetensors"), "step_0000.safetensors"),
    "metrics": (Case(r"/metrics\.jsonl"), "metrics.jsonl"),
    "waiting_batch": (Case(r"/loop_0002/|/loop_0001/\.batch_", is_resumed=True), "batch_0001.safetensors"),
    "loop": (Case(r"/loop_0001/\.loop\.json"), "loop.json"),
    "exported": (Case(r"step_0001\.partial/hf/actor"), "checkpoints/step_0001"),
    "exact": (Case(r"step_0001\.partial/critic/__0_0\.distcp"), "checkpoints/step_0001"),
    "exact_index": (Case(r"step_0001\.partial/critic/\.metadata"), "checkpoints/step_0001"),
    "exact_about": (Case(r"step_0001\.partial/trainer\.json"), "checkpoints/step_0001"),
    "manifest": (Case(r"step_0001\.partial/\.checkpoint\.json"), "checkpoints/step_0001"),
    "final": (Case(r"checkpoints/\.?final", is_resumed=True), "checkpoints/final/actor"),
    "metrics_table": (Case(r"/\.metrics\.parquet"), "metrics.parquet"),
    "failures_table": (Case(r"/\.failures\.parquet"), "failures.parquet"),
    "boxes": (Case(r"block-\d+/\d+", disk="boxes"), "No space left on device"),
    "notebook": (Case(r"/\.out\.\d+\.ipynb", work="notebook"), "out.ipynb"),
    "page": (Case(r"/\.out\.html", work="notebook"), "out.html"),
    "launch": (Case(r"\.launch\.json", work="launch"), "launch.json"),
}
AT_CREATION = ("config", "provenance", "plan", "reserve", "first_status")
WHOLE = ["e0000-heldout-000", "e0000-heldout_family-000", "e0002-heldout-000", "e0002-heldout_family-000"]
WHOLE += ["s0000-000", "s0000-001", "s0001-000", "s0001-001"]


@pytest.fixture
def boxes():
    """A directory that boxes, which run as another uid, can reach."""
    directory = Path(tempfile.mkdtemp(prefix="t1-boxes-"))
    directory.chmod(0o755)
    yield directory
    directory.rmdir()


def fill(names, tmp_path, boxes, *, actor, pool):
    """What became of each case, in one process with small file systems of its own."""
    places = {"disk": tmp_path / "disk", "box_disk": boxes}
    places["disk"].mkdir()
    notebook = tmp_path / "small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(1)")]), notebook)
    job, answer = tmp_path / "job.json", tmp_path / "answer.json"
    asked = {name: str(place) for name, place in places.items()}
    asked |= {"actor": str(actor), "pool": str(pool), "notebook": str(notebook), "answer": str(answer)}
    job.write_text(json.dumps(asked | {"cases": {name: asdict(ARTEFACTS[name][0]) for name in names}}))
    program = Path(__file__).with_name("filled_disk.py")
    mounts = " && ".join(f"mount -t tmpfs -o size=300m,mode=755 t1 {place}" for place in places.values())
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{mounts} && exec {sys.executable} {program} {job}"],
        capture_output=True, text=True, timeout=1800,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(answer.read_text())


def check(name, answer):
    case, named = ARTEFACTS[name]
    assert answer["filled_at"], "nothing such was written"
    if name == "boxes":
        assert named in answer["raised"] and "trials are usable" in answer["raised"]
    else:
        assert "disk full: " in answer["raised"] and f"{named} " in answer["raised"]
        assert answer["raised"].startswith("DiskFull")
    assert answer["after"]["children"] == [] and answer["boxes"] == []
    assert set(answer["after"]["files"]) <= set(answer["before"]["files"]), "files are left open"
    if case.work == "launch":
        assert [left for left in answer["left"] if "launch.json" in left] == []
    elif case.work == "notebook":
        assert answer["left"] == (["out.ipynb"] if name == "page" else [])
    elif name in AT_CREATION:
        assert answer["left"] == [], "half a run is left"
    else:
        assert answer["state"] == "failed" and named in answer["error"]
        assert answer["partial"] == [] and not answer["is_locked"]
        assert len(set(answer["trial_ids"])) == len(answer["trial_ids"])
    if case.is_resumed:
        assert answer["resumed"]["state"] == "finished"
        assert sorted(answer["resumed"]["trial_ids"]) == WHOLE and answer["resumed"]["tokens"] == [0, 1]


needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can mount a small disk and open boxes on it"
)


@needs_mounts
def test_a_disk_that_fills_up_during_a_checkpoint_is_named_and_nothing_is_left(tmp_path, boxes, actor, pool):
    check("exact", fill(["exact"], tmp_path, boxes, actor=actor, pool=pool)["exact"])


@needs_mounts
@pytest.mark.slow
def test_whatever_is_written_as_the_disk_fills_up_is_named_and_nothing_is_left(tmp_path, boxes, actor, pool):
    answers = fill(list(ARTEFACTS), tmp_path, boxes, actor=actor, pool=pool)
    wrong = {}
    for name, answer in answers.items():
        try:
            check(name, answer)
        except AssertionError as error:
            wrong[name] = f"{error}\n{json.dumps(answer, indent=1)[:2500]}"
    assert wrong == {}, "\n\n".join(f"{name}: {told}" for name, told in wrong.items())
