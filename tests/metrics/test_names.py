"""The catalogue: unknown names are refused, wildcards are closed where they can be, aliases lead home."""

import pytest

from t1core.metrics import CATALOGUE, check_names, lookup


def test_names_and_aliases_are_unique_and_every_metric_is_described():
    names = [name for metric in CATALOGUE for name in (metric.name, *metric.aliases)]
    assert len(names) == len(set(names))
    assert all(metric.unit and metric.meaning and metric.good for metric in CATALOGUE)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("reward/mean", "reward/mean"),
        ("rollout/stop/max_turns", "rollout/stop/<reason>"),
        ("rollout/failure/engine", "rollout/failure/<boundary>"),
        ("rollout/family/copy-files_2/reward_mean", "rollout/family/<family>/reward_mean"),
        ("eval/heldout_family/solved_frac", "eval/<split>/solved_frac"),
        ("critic/ev_quartile/4", "critic/ev_quartile/<q>"),
        ("logprob_gap_free/k3", "logprob_gap_free/k3"),
        ("tito/relation/split", "tito/relation/<relation>"),
    ],
)
def test_concrete_names_lead_to_their_metric(name, found):
    assert lookup(name).name == found


@pytest.mark.parametrize(
    "name",
    [
        "reward/men",
        "rollout/stop/tired",
        "critic/ev_quartile/5",
        "rollout/family/a/b/launched",
        "rollout/family//launched",
        "eval/<split>/solved_frac",
        "reward/mean ",
        "",
    ],
)
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match="is not defined"):
        check_names(["reward/mean", name])


def test_an_alias_is_refused_as_a_name_with_the_one_that_is_stored():
    with pytest.raises(ValueError, match="record 'critic/explained_variance'"):
        lookup("critic/vf_explained_var")
