"""A campaign that breaks at any place and is resumed has trained on the same batches as one that ran through."""

import asyncio

import numpy as np
import pytest
from recording_crew import Pool, RecordingCrew, SlowTailCrew

from t1core.config import load_config
from t1core.controller import Campaign, newest_resumption, run_loop
from t1core.store import Run, RunState, Standing

TIMED = ("time/", "cpu/", "memory/", "rollout/generated_tokens_per_s", "rollout/length", "rollout/survival")


class Broken(RuntimeError):
    pass


class FragileCrew(RecordingCrew):
    """Breaks at the nth call of one method."""

    def __init__(self, method=None, call=0, **options):
        super().__init__(**options)
        self._method, self._left = method, call

    def _count(self, method):
        if method == self._method:
            self._left -= 1
            if self._left == 0:
                raise Broken(method)

    async def launch(self, spec):
        self._count("launch")
        return await super().launch(spec)

    async def train(self, batch, **options):
        self._count("train")
        return await super().train(batch, **options)

    async def publish(self, version, **options):
        self._count("publish")
        return await super().publish(version, **options)

    async def save_checkpoint(self, directory, **options):
        self._count("save_checkpoint")
        return await super().save_checkpoint(directory, **options)


class SlowTail(SlowTailCrew, FragileCrew):
    pass


def campaign(run, crew, *overrides):
    config = load_config("smoke", ["num_steps=6", "train.num_critic_only_steps=1", *overrides])
    return Campaign(config=config, crew=crew, run=run, pool=Pool(), say=lambda line: None, is_evaluated=False)


def begin(tmp_path, name, crew, *overrides):
    """Run until it ends or breaks; True when it broke."""
    try:
        with Run.create(tmp_path, campaign="c", run_name=name, config={}, provenance={}) as run:
            asyncio.run(run_loop(campaign(run, crew, *overrides)))
    except (Broken, BaseExceptionGroup) as error:
        assert isinstance(error, Broken) or error.subgroup(Broken) is not None
        return True
    return False


def resume(tmp_path, name, crew, *overrides):
    resumption = newest_resumption(tmp_path / "c" / name / "checkpoints", pool=Pool())
    run = Run.resume(tmp_path / "c" / name)
    trained = -1 if resumption is None else resumption.iteration - 1
    run.set_aside(
        Standing(
            trained=trained,
            collected=trained + len(resumption.waiting if resumption else ()),
            evaluated=trained,
        )
    )
    with run:
        asyncio.run(run_loop(campaign(run, crew, *overrides), resumption))
    return Run.open(tmp_path / "c" / name), resumption


def batches(run):
    return {step: run.batch(step)[0] for step in run.token_steps()}


def assert_same(run, other):
    mine, theirs = batches(run), batches(other)
    assert mine.keys() == theirs.keys()
    for step in mine:
        assert mine[step].rollout_ids == theirs[step].rollout_ids
        for field in ("tokens", "weight_versions", "rewards", "loss_mask", "rollout_log_probs"):
            assert np.array_equal(getattr(mine[step], field), getattr(theirs[step], field)), (step, field)
    trials, others = run.trials(), other.trials()
    assert trials["trial_id"].is_unique and trials["trial_id"].tolist() == others["trial_id"].tolist()
    metrics, expected = run.metrics("train"), other.metrics("train")
    untimed = [name for name in expected if not name.startswith(TIMED)]
    assert metrics[untimed].equals(expected[untimed]) and set(metrics) == set(expected)


@pytest.mark.parametrize(
    ("method", "call", "iteration"),
    [("launch", 3, None), ("train", 1, None), ("train", 3, 2), ("launch", 17, 2), ("publish", 3, 2),
     ("save_checkpoint", 4, 3), ("train", 6, 5)],
)  # fmt: skip
def test_a_resumed_run_has_trained_on_the_same_batches(tmp_path, method, call, iteration):
    exact = "checkpoint_every=1"
    assert not begin(tmp_path, "whole", RecordingCrew(), exact)
    assert begin(tmp_path, "broken", FragileCrew(method, call), exact)
    crew = RecordingCrew()
    run, resumption = resume(tmp_path, "broken", crew, exact)
    assert (None if resumption is None else resumption.iteration) == iteration
    assert_same(run, Run.open(tmp_path / "c" / "whole"))
    assert crew.trained[0][0] == (0 if iteration is None else iteration), "the waiting batch comes first"
    status = run.status()
    assert (status.state, status.attempt, status.step) == (RunState.FINISHED, 2, 5)


def test_what_later_steps_left_is_kept_apart_and_nothing_is_counted_twice(tmp_path):
    assert begin(tmp_path, "r", FragileCrew("train", 6), "checkpoint_every=3")
    before = Run.open(tmp_path / "c" / "r")
    assert len(before.metrics("train")) == 5 and before.status().state is RunState.FAILED
    files = {path.name: path.read_bytes() for path in (before.path / "tokens").iterdir()}
    resumption = newest_resumption(before.path / "checkpoints", pool=Pool())
    run = Run.resume(before.path)
    into = run.set_aside(Standing(trained=2, collected=3, evaluated=3))
    assert into == run.path / "logs" / "attempt_1" / "superseded"
    assert sorted(path.name for path in (into / "tokens").iterdir()) == [
        "step_0003.safetensors",
        "step_0004.safetensors",
    ]
    assert all((into / "tokens" / name).read_bytes() == files[name] for name in ("step_0003.safetensors",))
    assert (into / "metrics.jsonl").exists() and (into / "metrics.parquet").exists()
    assert run.metrics("train").index.tolist() == [0, 1, 2] and run.trials()["step"].max() == 3
    assert run.survival()["step"].max() == 3 and run.status().step == 2
    with run:
        asyncio.run(run_loop(campaign(run, RecordingCrew(), "checkpoint_every=3"), resumption))
    assert Run.open(run.path).trials()["trial_id"].is_unique


def test_trials_that_were_alive_are_launched_again_as_the_next_attempt(tmp_path):
    settings = ("checkpoint_every=1", "rollout.tail=continue", "rollout.max_staleness=3")

    def slow(spec):
        return spec.trial_id.endswith("-004")

    assert begin(tmp_path, "r", SlowTail("train", 3, is_slow=slow), *settings)
    crew = SlowTail(is_slow=slow)
    run, resumption = resume(tmp_path, "r", crew, *settings)
    assert [spec.trial_id for spec in resumption.interrupted] == ["s0000-004"]
    assert "s0000-004~1" in crew.launched and "s0000-004" not in crew.launched
    lost = run.failures().query("kind == 'DriverGone'")
    assert lost["trial_id"].tolist() == ["s0000-004"]
    assert run.trials()["trial_id"].is_unique and "s0000-004~1" in set(run.trials()["trial_id"])
    # Five live trials a step: four new ones beside what is carried, or launched again.
    assert run.metrics("train")["rollout/launched"].tolist() == [5, 4, 4, 5, 5, 4]


def test_a_checkpoint_without_a_loop_beside_it_is_passed_over(tmp_path):
    assert begin(tmp_path, "r", FragileCrew("train", 4), "checkpoint_every=1")
    checkpoints = tmp_path / "c" / "r" / "checkpoints"
    (checkpoints / "loop_0003" / "loop.json").unlink()
    assert newest_resumption(checkpoints, pool=Pool()).iteration == 2
