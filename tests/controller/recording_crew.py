"""A crew that only notes what it was asked, and the trials it makes up."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from t1core.cluster.crew import CpuSeconds, Publication
from t1core.records import (
    Boundary,
    Failure,
    Grade,
    ModelCall,
    PrefixRelation,
    RewardSource,
    RowStatus,
    StopReason,
    Task,
    TestResult,
    TestStatus,
    TrainingRow,
    Trajectory,
    Turn,
    TurnSpan,
)
from t1core.rollout.trial import TrialResult
from t1core.train.checkpoint_directory import EXACT, write_manifest
from t1core.train.result import TrainResult

TASK = Task("t", "family", "train", None, "do", ("a", "b"))


class Pool:
    splits = ("train",)
    entries = (SimpleNamespace(task_id="t"),)

    def stretch(self, split, *, seed, start, count, shuffle):
        return [TASK] * count

    def task(self, entry):
        return TASK


class SlowTailCrew:
    """Mixed into a crew: the trials that `is_slow` names end with the next publication, or when they are cut; what they
    sampled is of both versions then."""

    def __init__(self, *arguments, is_slow, **options):
        super().__init__(*arguments, **options)
        self.is_slow, self.asleep, self.modes, self.launched = is_slow, {}, [], []

    async def launch(self, spec):
        self.launched.append(spec.trial_id)
        if not self.is_slow(spec):
            return await super().launch(spec)
        began = self.version
        self.asleep[spec.trial_id] = asyncio.get_running_loop().create_future()
        if await self.asleep[spec.trial_id] == "cut":
            return made_up_trial(spec, version=began, stop=StopReason.CUT)
        return spanning(made_up_trial(spec, version=began), self.version)

    async def cut(self, trial_ids):
        for trial_id in trial_ids:
            self.asleep.pop(trial_id).set_result("cut")

    async def publish(self, version, *, mode="abort"):
        published = await super().publish(version, mode=mode)
        self.modes.append(mode)
        self.wake()
        return published

    def wake(self):
        while self.asleep:
            self.asleep.popitem()[1].set_result("go on")


def spanning(result, version):
    """The last sampled token is of `version`, the others of what began it."""
    row = result.rows[0]
    versions = row.weight_versions.copy()
    versions[-1] = version
    call = replace(result.trajectory.calls[0], output_versions=versions[-3:], weight_version=version)
    trajectory = replace(result.trajectory, calls=(call,))
    return replace(result, trajectory=trajectory, rows=(replace(row, weight_versions=versions),))


class RecordingCrew:
    """Answers every call at once; `version` is what its engine holds."""

    def __init__(self, *, broken=lambda spec: False):
        self.version, self.published, self.trained, self.broken = None, [], [], broken
        self.loaded, self.saved = [], []

    async def launch(self, spec):
        failure = Failure(Boundary.SANDBOX, "BoxDied", "gone") if self.broken(spec) else None
        return made_up_trial(spec, version=self.version, failure=failure)

    async def cut(self, trial_ids):
        return None

    async def train(self, batch, *, update_actor, expected_version_lag, max_version_lag=None):
        sampled_by = set(batch.weight_versions[batch.loss_mask.astype(bool)].tolist())
        self.trained.append((batch.step, sampled_by, self.version, update_actor, expected_version_lag))
        return TrainResult(
            {"critic/explained_variance": 0.5, "logprob_gap/abs_mean": 0.0, "train/skipped": 0.0},
            {name: np.zeros(batch.num_tokens, np.float32) for name in ("values", "advantages", "returns")},
            {"critic": 1.5, "actor": 2.5},
            0.0,
        )

    async def publish(self, version, *, mode="abort"):
        self.version = version
        self.published.append(version)
        return Publication(0.0, 0.0, 0.0)

    async def save_weights(self, directory, role):
        directory.mkdir(parents=True, exist_ok=True)

    async def save_checkpoint(self, directory, *, content):
        self.saved.append((directory.name, content))
        directory.mkdir(parents=True, exist_ok=True)
        if content == "exact":
            (directory / EXACT).write_text(json.dumps({"version": self.version}))
        write_manifest(directory, content=content)

    async def load_checkpoint(self, directory):
        assert self.published == [], "loaded after something was published"
        self.loaded.append(directory)
        exact = directory / EXACT
        return json.loads(exact.read_text())["version"] if exact.exists() else 41

    async def cpu_s(self):
        return CpuSeconds(0.0, 0.0, 0.0)

    async def memory_mb(self):
        return {"trainer": 1.0, "engine": 1.0, "host": 1.0}


def made_up_trial(spec, *, version, failure=None, stop=StopReason.FAILED):
    if failure is not None or stop is StopReason.CUT:
        trajectory = Trajectory(
            spec.trial_id, "t", "family", "train", 2, spec.step, stop, failure, (), (), None, cpu_s={"grade": 0.0},
        )  # fmt: skip
        return TrialResult(trajectory, ())
    prompt, sampled = np.arange(4, dtype=np.int32), np.array([5, 6, 7], np.int32)
    routes = np.tile(np.array([0, 1], np.uint8), (6, 2, 1))
    call = ModelCall(
        f"{spec.trial_id}/0", spec.trial_id, None, prompt, sampled, np.zeros(3, np.float32), "stop", version,
        np.full(3, version, np.int32), routes, 0,
    )  # fmt: skip
    mask = (np.arange(7) >= 4).astype(np.uint8)
    row = TrainingRow(
        spec.trial_id, 0, np.concatenate([prompt, sampled]), 3, mask, np.zeros(7, np.float32), routes,
        np.where(mask, version, -1).astype(np.int32), 0.05, RowStatus.COMPLETED,
        (TurnSpan(call.model_call_id, 4, 7, PrefixRelation.STRICT),),
    )  # fmt: skip
    tests = (TestResult("a", TestStatus.PASSED), TestResult("b", TestStatus.FAILED))
    grade = Grade(0.05, RewardSource.CTRF, 1, 2, False, tests)
    turn = Turn(0, call.model_call_id, "{}", (), False, True, "", "", 0.0, 0.0, 0.0)
    trajectory = Trajectory(
        spec.trial_id, "t", "family", "train", 2, spec.step, StopReason.COMPLETED, None, (turn,), (call,), grade,
        cpu_s={"grade": 0.01},
    )  # fmt: skip
    return TrialResult(trajectory, (row,))
