"""The run checks: a clean run passes, and each rule is broken once."""

import math

import pandas as pd
import pytest

from t1core.analysis import assert_holds, check_learning, check_run, check_settings
from t1core.config import load_config
from tests.analysis.frames_by_hand import metrics_frame, trials_of


def _broken(metrics, trials=None, num_critic_only_steps=0):
    checks = check_run(
        metrics, trials=trials_of() if trials is None else trials, num_critic_only_steps=num_critic_only_steps
    )
    return [check.claim.split(":")[0] for check in checks if not check.holds]


def test_a_clean_run_breaks_nothing():
    checks = check_run(metrics_frame(), trials=trials_of(), num_critic_only_steps=0)
    assert [check.claim for check in checks if not check.holds] == []
    assert_holds(checks)


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"tito__drift_frac": [0, 0, 1e-9, 0]}, "sampled tokens are the trained tokens"),
        ({"tito__drift_frac": [0, 0, math.nan, 0]}, "sampled tokens are the trained tokens"),
        (
            {"tito__delivered_token_frac": [1, 1, 0.99, 1]},
            "every sampled token of a trained trial got a loss",
        ),
        ({"routing__missing": [0, 1, 0, 0]}, "no training row lacks its routes"),
        ({"routing__rows": [12, 12, 14, 12]}, "routing rows = tokens - 1"),
        ({"logprob_gap__nonfinite": [0, 0, 0, 2]}, "every loss token has a finite log-prob"),
        ({"staleness__max": [0, 1, 2, 1]}, "staleness is exactly 1"),
        ({"staleness__mean": [1, 1, 1, 1]}, "staleness is exactly 1"),
        ({"rollout__launched": [3, 3, 4, 3]}, "every launched trial is accounted for"),
        (
            {"rollout__cut": [1, 0, 1, 1], "rollout__failed": [0, 1, 0, 0]},
            "every launched trial is accounted for",
        ),
        ({"critic__explained_variance": [0.1, math.nan, 0.1, 0.1]}, "explained variance is finite"),
        ({"critic__explained_variance": [0.1, -math.inf, 0.1, 0.1]}, "explained variance is finite"),
    ],
)
def test_each_broken_rule_is_found_and_no_other(changes, claim):
    broken = _broken(metrics_frame(**changes))
    assert len(broken) == 1
    assert broken[0].startswith(claim)


def test_explained_variance_may_be_undefined_where_returns_do_not_vary():
    assert (
        _broken(
            metrics_frame(
                critic__explained_variance=[math.nan, 0.1, 0.1, 0.1], reward__std=[0, 0.2, 0.2, 0.2]
            )
        )
        == []
    )


def test_critic_only_steps_put_the_first_stale_batch_off():
    stale = [0, 0, 0, 1]
    assert _broken(metrics_frame(staleness__mean=stale, staleness__max=stale), num_critic_only_steps=2) == []
    assert len(_broken(metrics_frame(), num_critic_only_steps=2)) == 1


def _broken_under(overrides, **changes):
    config = load_config("smoke", ["train.num_critic_only_steps=0", "num_steps=4", *overrides])
    settings = check_settings(config.model_dump(mode="json"))
    checks = check_run(metrics_frame(**changes), trials=trials_of(), **settings)
    return [check.claim for check in checks if not check.holds]


def test_a_run_is_held_to_the_staleness_of_its_mode():
    assert _broken_under([]) == []
    assert _broken_under(["rollout.mode=sync"]) == ["staleness is exactly 0"]
    never = [0, 0, 0, 0]
    assert _broken_under(["rollout.mode=sync"], staleness__mean=never, staleness__max=never) == []
    # published: versions 0, 0, 2, 2 before steps 0 to 3, each sampled one step earlier
    second = [0, 0, 2, 0]
    assert _broken_under(["rollout.publish_every=2"], staleness__mean=second, staleness__max=second) == []
    assert len(_broken_under(["rollout.publish_every=2"])) == 1


def test_answers_re_encoded_on_purpose_are_not_held_to_token_fidelity():
    drifted = {"tito__drift_frac": [0.1] * 4, "tito__delivered_token_frac": [0.9] * 4}
    assert len(_broken_under([], **drifted)) == 2
    assert _broken_under(["rollout.token_fidelity=reencoded"], **drifted) == []


def test_a_skipped_step_is_not_asked_for_what_only_an_optimiser_step_defines():
    nan = math.nan
    changes = {"logprob_gap__nonfinite": [0, nan, 0, 0], "critic__explained_variance": [0.1, nan, 0.1, 0.1]}
    changes |= {"staleness__mean": [0, nan, 1, 1], "staleness__max": [0, nan, 1, 1]}
    assert len(_broken(metrics_frame(**changes))) == 3
    assert _broken(metrics_frame(**changes, train__skipped=[0, 1, 0, 0])) == []


def test_a_trial_that_was_counted_but_not_stored_is_missed():
    assert _broken(metrics_frame(), trials=trials_of().iloc[1:]) == ["every launched trial is accounted for"]


def test_a_metric_that_was_never_recorded_does_not_pass():
    assert len(_broken(metrics_frame().drop(columns="tito/drift_frac"))) == 1
    assert _broken(pd.DataFrame(index=pd.RangeIndex(0, name="step"))) == ["the run trained"]


def test_a_broken_check_raises_with_its_evidence():
    checks = check_run(
        metrics_frame(routing__missing=[0, 1, 0, 0]), trials=trials_of(), num_critic_only_steps=0
    )
    with pytest.raises(AssertionError, match="routing/missing is not 0 in 1 of 4 steps: 1"):
        assert_holds(checks)


def test_a_run_without_a_critic_is_held_to_the_rest_and_one_with_it_to_all():
    metrics = metrics_frame().drop(columns="critic/explained_variance")
    assert _broken(metrics) == ["explained variance is finite wherever returns vary"]
    without = check_run(metrics, trials=trials_of(), num_critic_only_steps=0, has_critic=False)
    assert [check.claim for check in without if not check.holds] == []
    learning = [check.claim for check in check_learning(metrics, trials=trials_of(), has_critic=False)]
    assert len(learning) == len(check_learning(metrics_frame(), trials=trials_of())) - 3
    assert not any("explained variance" in claim for claim in learning)
