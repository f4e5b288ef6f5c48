"""Whole campaigns in which trials live on across publications: what they store must hold like any other run's."""

import pytest
from test_resume import environment, finish, start  # noqa: F401

from t1core.analysis.checks import check_run
from t1core.store import Run

SETTINGS = (
    "rollout.tail=continue", "rollout.max_staleness=3", "num_steps=6", "train.num_critic_only_steps=1",
    "agent.max_turns=3", "agent.max_new_tokens=48", "rollout.rollout_batch_size=3",
    "rollout.over_sampling_batch_size=6", "rollout.max_live_trials=6", "evaluation.tasks_per_split=1",
    "cluster.control_deadline_s=100.0",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["one_step", "async"])
def test_every_trial_is_accounted_for_and_no_token_is_older_than_the_bound(
    tmp_path,
    settings,
    environment,  # noqa: F811
    mode,
):
    log = tmp_path / "log"
    words = [
        word for override in (*settings, *SETTINGS, f"rollout.mode={mode}") for word in ("--set", override)
    ]
    path = tmp_path / "runs" / "smoke" / "r"
    finish(start(["campaign", "smoke", "--run-name", "r", *words], log, environment), log, environment, path)
    run = Run.open(path)
    metrics = run.metrics("train")
    checks = check_run(metrics, trials=run.trials(), num_critic_only_steps=1, max_staleness=3)
    assert [check.claim for check in checks if not check.holds] == []
    assert metrics["rollout/continued"].sum() > 0, "nothing lived on, so nothing was tried"
    assert run.trials("train")["trial_id"].is_unique
    for step in run.token_steps():
        versions = run.batch(step)[0].weight_versions
        assert versions.max() <= step
