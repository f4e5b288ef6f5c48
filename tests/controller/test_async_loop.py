"""The loop without a barrier: how far it runs ahead, what survives a publication, how old a trained token may be."""

import asyncio

import pytest
from recording_crew import Pool, RecordingCrew, SlowTailCrew

from t1core.config import load_config
from t1core.controller import Campaign, newest_resumption, run_loop
from t1core.controller.async_loop import Flow
from t1core.store import Run, Standing

SETTINGS = ("rollout.mode=async", "rollout.tail=continue", "num_steps=8", "train.num_critic_only_steps=1")


class SlowTrainer(SlowTailCrew, RecordingCrew):
    """Trains while `patience` turns of the event loop pass, and notes how old each batch's tokens are."""

    patience = 50

    def __init__(self, *arguments, is_slow=lambda spec: False, **options):
        super().__init__(*arguments, is_slow=is_slow, **options)
        self.lags, self.bounds = [], set()

    async def train(self, batch, *, expected_version_lag, max_version_lag, **options):
        for _ in range(self.patience):
            await asyncio.sleep(0)
        versions = batch.weight_versions[batch.loss_mask.astype(bool)]
        self.lags.append((self.version - versions.max(), self.version - versions.min()))
        self.bounds.add((expected_version_lag, max_version_lag))
        return await super().train(batch, expected_version_lag=expected_version_lag, **options)


def campaign(store, crew, *overrides):
    config = load_config("smoke", [*SETTINGS, *overrides])
    return Campaign(
        config=config, crew=crew, run=store, pool=Pool(), say=lambda line: None, is_evaluated=False
    )


def run(tmp_path, crew, *overrides, name="r"):
    with Run.create(tmp_path, campaign="c", run_name=name, config={}, provenance={}) as store:
        asyncio.run(run_loop(campaign(store, crew, *overrides)))
    return Run.open(tmp_path / "c" / name)


def test_a_batch_may_begin_while_at_most_the_bound_waits_before_it():
    flow = Flow(num_trained=3, max_staleness=2)
    assert [flow.may_begin(step) for step in (4, 5, 6)] == [True, True, False]


@pytest.mark.parametrize("bound", [2, 4])
def test_collecting_runs_ahead_of_a_slow_trainer_up_to_the_bound(tmp_path, bound):
    crew = SlowTrainer()
    stored = run(tmp_path, crew, f"rollout.max_staleness={bound}")
    assert [step for step, *_ in crew.trained] == list(range(8))
    assert crew.bounds == {(0, bound)}
    oldest = [old for _, old in crew.lags]
    assert max(oldest) == bound, "it runs as far ahead as it may, and no farther"
    assert set(crew.modes[1:]) == {"in_place"}, "nothing is ended by a publication"
    trials, metrics = stored.trials(), stored.metrics("train")
    assert trials["trial_id"].is_unique and metrics.index.tolist() == list(range(8))
    assert (metrics["time/wait_s"] >= 0).all()


def test_a_trial_survives_publications_and_is_trained_once(tmp_path):
    crew = SlowTrainer(is_slow=lambda spec: spec.trial_id == "s0001-000")
    crew.patience = 0
    stored = run(tmp_path, crew, "rollout.max_staleness=4")
    trial = stored.trials().set_index("trial_id").loc["s0001-000"]
    assert crew.launched.count("s0001-000") == 1
    assert trial["outcome"] == "accepted" and trial["step"] > 1, "it ended after its own step was whole"
    tokens = stored.tokens(int(trial["step"]), trial_id="s0001-000")
    assert tokens[tokens["sampled"]]["weight_version"].nunique() == 2, "and holds tokens of two versions"


def test_what_breaks_on_one_side_ends_the_other(tmp_path):
    class Broken(SlowTrainer):
        async def train(self, batch, **options):
            if batch.step == 2:
                raise RuntimeError("a rank is gone")
            return await super().train(batch, **options)

    crew = Broken(is_slow=lambda spec: spec.step >= 2 and spec.trial_id.endswith("-000"))
    crew.wake = lambda: None
    with pytest.raises(BaseExceptionGroup) as stopped:
        run(tmp_path, crew, "rollout.max_staleness=2", "cluster.control_deadline_s=5.0")
    assert stopped.value.subgroup(RuntimeError) is not None and crew.asleep == {}


def test_a_resumed_run_trains_every_batch_once(tmp_path):
    class Breaks(SlowTrainer):
        async def train(self, batch, **options):
            if batch.step == 5:
                raise RuntimeError("gone")
            return await super().train(batch, **options)

    settings = ("rollout.max_staleness=3", "checkpoint_every=2")
    with pytest.raises(BaseExceptionGroup):
        run(tmp_path, Breaks(), *settings)
    path = tmp_path / "c" / "r"
    resumption = newest_resumption(path / "checkpoints", pool=Pool())
    assert resumption.iteration == 4 and 1 <= len(resumption.waiting) <= 3
    assert [collected.step for collected in resumption.waiting] == list(range(4, 4 + len(resumption.waiting)))
    crew = SlowTrainer()
    with Run.resume(path) as store:
        store.set_aside(Standing(trained=3, collected=3 + len(resumption.waiting), evaluated=4))
        asyncio.run(run_loop(campaign(store, crew, *settings), resumption))
    stored = Run.open(path)
    assert [step for step, *_ in crew.trained] == [4, 5, 6, 7]
    assert stored.trials()["trial_id"].is_unique and stored.token_steps() == list(range(8))


def test_without_continuing_trials_there_is_no_async_mode():
    with pytest.raises(ValueError, match="set tail='continue'"):
        load_config("smoke", ["rollout.mode=async"])
