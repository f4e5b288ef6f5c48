"""Trainers killed at a point of a step, and others that go on from what they left. Usage: killed_trainer.py JOB

The job names an actor, a scratch directory and points; the answer, out.json, has for each point how the process ended,
the checkpoint that the next one found, and the weights' checksums after the last step. Every trainer is a fork of this
process, which only imports: a start costs a second instead of ten. The first step is made once, and each trainer that
is killed goes on from a copy of its checkpoint.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ppo_scenario import adam, pipelined_steps, trainer

from t1core.train import checkpoint
from t1core.train import trainer as trainer_module
from t1core.train.checkpoint_directory import newest_whole
from t1core.train.learner import Learner

NUM_STEPS, KILLED_IN = (
    2,
    1,
)  # the second step of two; the first is followed by a checkpoint, and so is a killed one


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, *, count: int = 0) -> Callable[[], None]:
    """Kill when `owner.name` is called for the time number `count`."""

    def arm() -> None:
        whole, calls = getattr(owner, name), []

        def deadly(*args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            if len(calls) > count:
                die()
            return whole(*args, **kwargs)

        setattr(owner, name, deadly)

    return arm


# In the order in which a step passes them. Critic and actor each accumulate and step once a step, the critic first.
POINTS: dict[str, Callable[[], None]] = {
    "the critic's passes": before(Learner, "accumulate"),
    "the critic's update": before(Learner, "step"),
    "scoring under the behaviour snapshot": before(Learner, "score"),
    "the actor's passes": before(Learner, "accumulate", count=1),
    "the actor's update": before(Learner, "step", count=1),
    "the exports of a save": before(trainer_module, "save_weights", count=1),
    "the middle of a save": before(checkpoint, "_save", count=2),
    "the end of a save": before(trainer_module, "write_manifest"),
    "the renaming of a save": before(Path, "rename"),
}


def run(job: dict, root: Path, *, until: int = NUM_STEPS, point: str | None = None) -> None:
    """Go on from the newest checkpoint of `root`, if any, to step `until`; leave checksums in done.json."""
    with trainer(job["actor_path"], actor=adam(1e-3, eps=1e-8), critic=adam(1e-3, eps=1e-8)) as made:
        found = newest_whole(root)
        first = 0
        if found is not None:
            made.load_checkpoint(found)
            first = int(found.name.removeprefix("step_"))
        for step in range(first, until):
            if point is not None and step == KILLED_IN:
                POINTS[point]()
            pipelined_steps(made, first=step, count=1)
            if step < KILLED_IN or point is not None:
                made.save_checkpoint(root / f"step_{step + 1:04d}")
        answer = {"found": found and found.name, "weights": [made.checksum(), made.checksum("critic")]}
        (root / "done.json").write_text(json.dumps(answer))


def forked(work: Callable[[], None]) -> int:
    """Do it in a child; its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(job: dict) -> None:
    scratch = Path(job["scratch"])
    whole, prefix = scratch / "uninterrupted", scratch / "prefix"
    for root in (whole, prefix):
        root.mkdir()
    ended = forked(lambda: run(job, whole))
    answers: dict[str, Any] = {"uninterrupted": {"ended": ended} | _done(whole)}
    assert forked(lambda: run(job, prefix, until=KILLED_IN)) == 0
    (prefix / "done.json").unlink()
    for i, point in enumerate(job["points"]):
        root = scratch / f"killed_{i}"
        shutil.copytree(prefix, root)
        ended = forked(lambda root=root, point=point: run(job, root, point=point))
        assert not (root / "done.json").exists(), f"nothing was killed at {point!r}"
        assert forked(lambda root=root: run(job, root)) == 0
        answers[point] = {"ended": ended} | _done(root)
    (scratch / "out.json").write_text(json.dumps(answers))


def _done(root: Path) -> dict[str, Any]:
    return json.loads((root / "done.json").read_text())


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
