"""What writes files, on a disk that fills up as a chosen one is about to be written: run by `test_full_disk.py`.

    python tests/campaign/filled_disk.py JOB.json

The job names two small file systems (one for runs, one for boxes), the actor, the pool, and the cases. In each case
the real loop, trainer, engine, boxes and graders run a campaign in this process, or a notebook is executed, or a
campaign is launched. As the first file or directory that matches the case's pattern is opened for writing or made,
everything that is free on its file system is taken, so that the write meets a real ENOSPC. Then the room is given back,
and what became of it all is the case's answer.
"""

import dataclasses
import errno
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from one_process import have_parts_here, run_here

from t1core.campaign.launch import launch_or_attach
from t1core.campaign.notebook import run_notebook
from t1core.campaign.resume import resume_campaign
from t1core.store import Run
from t1core.store.run import RunBusy

OVERRIDES = (
    "num_steps=2", "checkpoint_every=1", "agent.max_turns=1", "agent.max_new_tokens=16", "evaluation.tasks_per_split=1",
    "rollout.rollout_batch_size=2", "rollout.over_sampling_batch_size=2", "rollout.max_live_trials=2",
    "train.num_critic_only_steps=0", "cluster.min_free_memory_mb=0", "cluster.min_free_disk_mb=0",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """`pattern`: of the path that fills the disk, which is `disk`. `work`: what is done. `is_resumed`: whether the run
    is gone on with afterwards."""

    pattern: str
    work: str = "campaign"
    overrides: tuple[str, ...] = ()
    is_resumed: bool = False
    disk: str = "runs"


class FillingDisk:
    """Takes what is free on a file system when a path that matches is opened for writing or made, once."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[str] | None = None
        self._filler = Path()
        self.filled_at = ""
        sys.addaudithook(self._hook)

    def arm(self, pattern: str, *, disk: Path) -> None:
        self._pattern, self._filler, self.filled_at = re.compile(pattern), disk / "filler", ""

    def give_back(self) -> None:
        self._pattern = None
        self._filler.unlink(missing_ok=True)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._pattern is None or event not in ("open", "os.mkdir"):
            return
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else ""
        is_written = event == "os.mkdir" or arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if is_written and self._pattern.search(path):
            self._pattern, self.filled_at = None, path
            self._fill()

    def _fill(self) -> None:
        size = 1 << 20
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT)
        while size:
            try:
                os.write(descriptor, bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                size //= 2
        os.close(descriptor)


def traces(pool: Path) -> dict[str, Any]:
    """What is left in this process: children, and files that are open. Sockets and pipes are those of gloo's groups,
    which end with a trainer's process; a pool's index is open as long as whoever reads it."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    children = [child.name() for child in psutil.Process().children(recursive=True)]
    return {
        "files": sorted(
            link
            for link in links
            if link.startswith("/") and link != os.devnull and not link.startswith(str(pool))
        ),
        "children": children,
    }


def carry_out(name: str, case: Case, job: dict[str, Any], patch: pytest.MonkeyPatch) -> None:
    """Do the case's work; raises what that raises."""
    runs = Path(job["disk"], "runs")
    if case.work == "campaign":
        overrides = [*OVERRIDES, *case.overrides, f"run_root={runs}"]
        actor, pool = Path(job["actor"]), Path(job["pool"])
        run_here(overrides, actor=actor, pool=pool, name=name, monkeypatch=patch, is_evaluated=True)
    elif case.work == "notebook":
        output = Path(job["disk"], "out.ipynb")
        run_notebook(Path(job["notebook"]), parameters={}, output=output)
    else:
        overrides = [f"model.actor_path={job['actor']}", f"tasks.pool={job['pool']}"]
        launch_or_attach(preset="smoke", seed=0, overrides=overrides, run_root=str(runs), name="smoke")


def about(path: Path) -> dict[str, Any]:
    """What a run says of itself, and whether its lock can be had."""
    run = Run.open(path)
    status, trials = run.status(), run.trials()
    found = {
        "state": status.state,
        "error": status.error,
        "tokens": run.token_steps(),
        "trial_ids": trials["trial_id"].tolist() if len(trials) else [],
        "partial": [
            str(one.relative_to(path)) for one in path.rglob(".*") if one.suffix in (".tmp", ".partial")
        ],
    }
    try:
        os.close(Run.resume(path)._lock)
    except RunBusy:
        return found | {"is_locked": True}
    return found | {"is_locked": False}


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    os.environ["T1CORE_BOX_DIR"] = job["box_disk"]
    disk, answers = FillingDisk(), {}
    for name, fields in job["cases"].items():
        case = Case(**fields)
        told, before = "", traces(Path(job["pool"]))
        with pytest.MonkeyPatch.context() as patch:
            disk.arm(case.pattern, disk=Path(job["disk"] if case.disk == "runs" else job["box_disk"]))
            try:
                carry_out(name, case, job, patch)
            except BaseException as error:
                told = f"{type(error).__name__}: {error}"
            disk.give_back()
        answer = answers[name] = {
            "filled_at": disk.filled_at,
            "raised": told,
            "before": before,
            "after": traces(Path(job["pool"])),
        }
        path = Path(job["disk"], "runs", "smoke", name)
        answer["left"] = sorted(
            str(one.relative_to(job["disk"])) for one in Path(job["disk"]).rglob("*") if one.is_file()
        )
        answer["boxes"] = [str(one) for one in Path(job["box_disk"]).glob("block-*/*")]
        if path.exists():
            answer |= about(path)
            if case.is_resumed:
                with pytest.MonkeyPatch.context() as patch:
                    have_parts_here(patch)
                    resume_campaign(path, say=lambda line: None)
                answer["resumed"] = about(path)
        shutil.rmtree(Path(job["disk"], "runs"), ignore_errors=True)
    Path(job["answer"]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
