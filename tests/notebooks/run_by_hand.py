"""A small finished run whose numbers were written by hand, so that notebooks execute on it. Not a
measurement.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from t1core.config import load_config
from t1core.records import StopReason
from t1core.store import Run, collect_provenance
from tests.store.records_by_hand import batch, engine_failure, trial

HOSTILE = "</pre><script>alert(1)</script>\x1b[31m<img src=x onerror=alert(1)>\u202e"


def write_run(root: Path, *, steps: int = 4, changes: dict[str, float] | None = None) -> Run:
    """Each step: trials a and b accepted, c cut, d broken; 14 tokens, 12 routing rows; critic-only step 0."""
    config = {"train": {"num_critic_only_steps": 0}, "num_steps": steps}
    run = Run.create(
        root, campaign="hand", run_name="run", config=config, provenance=collect_provenance(), num_steps=steps
    )
    with run:
        fill_run(run, steps=steps, changes=changes)
    return run


def fill_run(run: Run, *, steps: int, passed: int = 4, changes: dict[str, float] | None = None) -> None:
    """Record all of it but the run's end; `passed` tests of 4 in the last evaluation."""
    run.record_vocabulary(["<pad>", "ls", " -", "la", "\n", "<|im_end|>", "cat", " <x>"])
    _evaluate(run, step=0, passed=1)
    for step in range(steps):
        _train(run, step=step, changes=changes or {})
    _evaluate(run, step=steps, passed=passed)


def open_run(path: Path, *, steps: int = 4) -> Run:
    """A new run at this path, with the smoke preset's configuration and nothing to start from."""
    settings = ["train.num_critic_only_steps=0", f"num_steps={steps}"]
    return Run.create(
        path.parents[1],
        campaign=path.parent.name,
        run_name=path.name,
        config=load_config("smoke", settings).model_dump(mode="json"),
        provenance=collect_provenance(),
        num_steps=steps,
        plan={"pool": "", "actor": "", "critic": None, "is_evaluated": True},
    )


def _train(run: Run, *, step: int, changes: dict[str, float]) -> None:
    names = [f"s{step}{letter}" for letter in "abcd"]
    trials = [
        trial(names[0], step=step, passed=min(4, step + 1), observation=HOSTILE, task_id=f"copy-{step}"),
        trial(names[1], step=step, passed=2, family="count"),
        trial(names[2], step=step, passed=None, stop=StopReason.CUT),
        trial(names[3], step=step, passed=None, stop=StopReason.FAILED, failure=engine_failure()),
    ]
    run.record_trajectories(trials, step=step)
    made, spans = batch(*names[:2], step=step)
    line = np.linspace(-1, 1, 14, dtype=np.float32)
    per_token = {"values": line, "advantages": line, "returns": line, "trainer_logprobs": line - 1.5}
    per_token["flipped_layers"] = np.arange(14, dtype=np.float32)
    run.record_tokens(made, per_token=per_token, spans=spans)
    run.record_metrics({**_metrics(step, [min(4, step + 1) / 20, 0.1]), **changes}, step=step)
    run.update_status(step=step)


def _metrics(step: int, rewards: list[float]) -> dict[str, float]:
    stale = float(step > 0)
    return {
        "reward/mean": float(np.mean(rewards)),
        "reward/std": float(np.std(rewards)),
        "rollout/launched": 4,
        "rollout/accepted": 2,
        "rollout/surplus": 0,
        "rollout/cut": 1,
        "rollout/failed": 1,
        "rollout/quarantined": 0,
        "train/tokens": 14,
        "routing/rows": 12,
        "routing/missing": 0,
        "tito/drift_frac": 0.0,
        "tito/delivered_token_frac": 1.0,
        "staleness/mean": stale,
        "staleness/max": stale,
        "logprob_gap/nonfinite": 0,
        "logprob_gap/abs_mean": 0.01,
        "logprob_gap_free/abs_mean": 0.02,
        "critic/explained_variance": float("nan") if np.std(rewards) == 0 else 0.1 * step,
        "critic/ev_num_tests_baseline": 0.05,
        "time/step_s": 4.0,
        "time/rollout_s": 3.0,
        "time/train_s": 2.0,
        "time/barrier_s": 0.5,
        "cpu/generate_s": 1.0,
        "cpu/box_s": 0.5,
        "cpu/grade_s": 2.0,
        "cpu/train_s": 1.5,
        "cpu/driver_s": 0.1,
    }


def _evaluate(run: Run, *, step: int, passed: int) -> None:
    trials = [
        replace(
            trial(f"e{step}-{split}-{n}", step=step, passed=passed if n else 0, split=split),
            task_id=f"{split}-{n}",
        )
        for split in ("heldout", "heldout_family")
        for n in range(3)
    ]
    run.record_trajectories(trials, step=step, kind="eval")
