"""Trials of known durations through the real scheduler, and the counter that counts only what it kept."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

from t1core.analysis import Check, check_run
from t1core.records import (
    Grade,
    RewardSource,
    RowStatus,
    StopReason,
    Task,
    TrainingRow,
    Trajectory,
)
from t1core.rollout.skim import StepRollout, skim
from t1core.rollout.trial import TrialResult, TrialSpec
from t1core.store import Run


class TimedTrials:
    """Trials that end by the clock, with a reward each, and can be cut: no model, no box."""

    def __init__(self, seconds: Mapping[str, float], *, rewards: Mapping[str, float]) -> None:
        self._seconds, self._rewards = seconds, rewards
        self._cut: dict[str, asyncio.Event] = {}

    async def launch(self, spec: TrialSpec) -> TrialResult:
        cut = self._cut[spec.trial_id] = asyncio.Event()
        try:
            await asyncio.wait_for(cut.wait(), self._seconds[spec.trial_id])
            return _result(spec, reward=None)
        except TimeoutError:
            return _result(spec, reward=self._rewards[spec.trial_id])

    async def cut(self, trial_ids: list[str]) -> None:
        for trial_id in trial_ids:
            self._cut[trial_id].set()


def planned_trials(families: Mapping[str, tuple[int, float, float]], *, seed: int) -> pd.DataFrame:
    """Trials of each family, (number, median seconds, mean reward), in a drawn order; log-normal durations."""
    rng = np.random.default_rng(seed)
    rows = [
        dict(family=family, seconds=float(seconds), reward=float(reward))
        for family, (number, median, mean) in families.items()
        for seconds, reward in zip(
            median * np.exp(rng.normal(0, 0.4, number)), rng.binomial(20, mean, number) / 20, strict=True
        )
    ]
    frame = pd.DataFrame(rows).sample(frac=1, random_state=seed, ignore_index=True)
    return frame.assign(trial_id=[f"s0-{number}" for number in range(len(frame))])


def run_step(planned: pd.DataFrame, *, accept: int) -> StepRollout:
    """The planned trials, all at once, through `rollout.skim`; what is not among the first `accept` is cut."""
    trials = TimedTrials(
        dict(zip(planned["trial_id"], planned["seconds"], strict=True)),
        rewards=dict(zip(planned["trial_id"], planned["reward"], strict=True)),
    )
    specs = [
        TrialSpec(
            trial_id, Task(family, family, "train", None, "", ("a",)), step=0, attempt=0, sampling_seed=0
        )
        for trial_id, family in zip(planned["trial_id"], planned["family"], strict=True)
    ]
    step = skim(specs, launch=trials.launch, cut=trials.cut, accept=accept, max_live=len(specs))
    with ThreadPoolExecutor(1) as pool:  # a notebook's own thread has a running loop
        return pool.submit(asyncio.run, step).result()


def counted_at_the_end(accepted: Sequence[TrialResult]) -> dict[str, int]:
    """The faulty counter: it is handed the batch, so a trial that never came back is in neither number."""
    return {"trials": len(accepted), "lost": sum(trial.trajectory.grade is None for trial in accepted)}


def stored_accounting(folder: Path, rollout: StepRollout, *, counted: Mapping[str, int]) -> Check:
    """Write the step's trials and the counts given into a run in `folder`, and have the check of every run read them
    back: launched, counted and stored trials must be the same ones."""
    run = Run.create(folder, campaign="skim", run_name="step", config={}, provenance={}, num_steps=1)
    with run:
        trajectories = [result.trajectory for result in rollout.results()]
        run.record_trajectories(trajectories, step=0, outcomes=rollout.outcomes())
        metrics = {f"rollout/{name}": float(count) for name, count in counted.items()}
        run.record_metrics({**metrics, "train/tokens": 1.0}, step=0)
    checks = check_run(run.metrics("train"), trials=run.trials(), num_critic_only_steps=0, has_critic=False)
    return next(check for check in checks if "accounted for" in check.claim)


def _result(spec: TrialSpec, *, reward: float | None) -> TrialResult:
    grade = None if reward is None else Grade(reward, RewardSource.CTRF, round(20 * reward), 20, False, ())
    stop = StopReason.CUT if reward is None else StopReason.COMPLETED
    family = spec.task.family
    trajectory = Trajectory(
        spec.trial_id, spec.task.task_id, family, "train", 20, 0, stop, None, (), (), grade
    )
    return TrialResult(trajectory, () if reward is None else (_row(spec.trial_id, reward=reward),))


def _row(trial_id: str, *, reward: float) -> TrainingRow:
    """Two tokens, the second sampled."""
    return TrainingRow(
        rollout_id=trial_id,
        chunk=0,
        tokens=np.array([1, 2], dtype=np.int32),
        response_length=1,
        loss_mask=np.array([0, 1], dtype=np.uint8),
        rollout_log_probs=np.array([0, -1], dtype=np.float32),
        rollout_routed_experts=None,
        weight_versions=np.array([-1, 0], dtype=np.int32),
        reward=reward,
        status=RowStatus.COMPLETED,
        spans=(),
    )
