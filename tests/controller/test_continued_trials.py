"""The real loop with tails that live on across publications."""

import asyncio
from dataclasses import replace

from recording_crew import Pool, RecordingCrew, SlowTailCrew

from t1core.analysis.checks import check_run
from t1core.config import load_config
from t1core.controller import Campaign, run_loop
from t1core.store import Run


class Crew(SlowTailCrew, RecordingCrew):
    async def train(self, batch, **options):
        result = await super().train(batch, **options)
        return replace(result, metrics=result.metrics | {"train/tokens": float(batch.num_tokens)})


def run(tmp_path, crew, *overrides):
    config = load_config(
        "smoke", ["num_steps=6", "train.num_critic_only_steps=0", "rollout.tail=continue", *overrides]
    )
    with Run.create(tmp_path, campaign="c", run_name="r", config={}, provenance={}, num_steps=6) as store:
        campaign = Campaign(
            config=config, crew=crew, run=store, pool=Pool(), say=lambda line: None, is_evaluated=False
        )
        asyncio.run(run_loop(campaign))
    return Run.open(tmp_path / "c" / "r")


def test_a_continued_trial_is_trained_once_with_the_versions_that_sampled_it(tmp_path):
    crew = Crew(is_slow=lambda spec: spec.trial_id.endswith("-004"))
    stored = run(tmp_path, crew, "rollout.max_staleness=2")
    metrics = stored.metrics("train")
    # Nothing is published after step 0, so the first slow trial lives through step 1; beside it only four are launched,
    # none of them slow. It ends with the first publication, in step 2.
    assert metrics["rollout/continued"].tolist() == [1, 1, 0, 1, 0, 0]
    assert metrics["rollout/carried"].tolist() == [0, 1, 1, 0, 1, 0]
    assert metrics["rollout/launched"].tolist() == [5, 4, 4, 5, 4, 5]
    assert crew.modes[1] == "in_place", "a living request is frozen, not ended"
    assert len(set(crew.launched)) == len(crew.launched), "nothing is launched twice"
    trials = stored.trials()
    assert trials["trial_id"].is_unique and len(trials) == len(crew.launched)
    spanned = [batch for step, batch, *_ in crew.trained if len(batch) > 1]
    assert spanned, "a batch holds tokens of two versions"
    checks = check_run(metrics, trials=trials, num_critic_only_steps=0, max_staleness=2)
    accounted = next(check for check in checks if check.claim == "every launched trial is accounted for")
    assert accounted.holds, accounted.evidence
    survival = stored.survival()
    assert survival["continued"].sum() == 3 and (survival["kept_share"] > 0.5).all()


def test_what_would_be_trained_too_late_is_cut(tmp_path):
    class Asleep(Crew):
        """Slow trials never end by themselves."""

        def wake(self):
            pass

    crew = Asleep(is_slow=lambda spec: spec.trial_id == "s0001-003")
    stored = run(tmp_path, crew, "rollout.max_staleness=3")
    trial = stored.trials().set_index("trial_id").loc["s0001-003"]
    # Steps sample with versions 0, 0, 1, 2, 3, 4, and train one later: version 0 may not be trained at 4, in step 4.
    assert trial["outcome"] == "cut" and trial["step"] == 4
    assert stored.metrics("train")["rollout/stale"].tolist() == [0, 0, 0, 0, 1, 0]


def test_the_last_steps_tail_is_cut(tmp_path):
    crew = Crew(is_slow=lambda spec: spec.step == 5 and spec.trial_id.endswith("-000"))
    stored = run(tmp_path, crew, "rollout.max_staleness=2")
    assert stored.trials().set_index("trial_id").loc["s0005-000", "outcome"] == "cut" and crew.asleep == {}
