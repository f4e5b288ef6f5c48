"""A run kept small: it opens as a run, says the same, and what cannot be kept is refused."""

import pandas as pd
import pytest

from t1core.store import Run
from t1core.store import kept_run as keeping
from t1core.store.kept_run import keep_run
from tests.notebooks.run_by_hand import write_run


@pytest.fixture
def run(tmp_path):
    return Run.open(write_run(tmp_path / "runs").path)


def test_a_kept_run_has_the_same_metrics_trials_and_tests_and_the_turns_of_those_named(run, tmp_path):
    target = tmp_path / "kept"
    size = keep_run(run, target, whole=["s1a"])
    kept = Run.open(target)
    assert size == sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    assert kept.metrics("train").equals(run.metrics("train"))
    pd.testing.assert_frame_equal(
        kept.trials().drop(columns="grader_output"), run.trials().drop(columns="grader_output")
    )
    assert kept.all_tests().equals(run.all_tests())
    assert len(kept.turns("s1a")) == len(run.turns("s1a")) > 0
    assert kept.turns("s1b").empty and not run.turns("s1b").empty
    assert kept.calls("s1a").empty
    assert kept.token_steps() == []
    assert kept.provenance() == run.provenance()


def test_places_of_the_machine_stay_behind(tmp_path):
    told = keeping._without_places(
        {"run_root": "/a/b/runs", "model": {"actor_path": "/x/actor", "layers": 4}}
    )
    assert told == {"run_root": "runs", "model": {"actor_path": "actor", "layers": 4}}


def test_what_cannot_be_kept_is_refused_and_leaves_nothing(run, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="has no trial nobody"):
        keep_run(run, tmp_path / "kept", whole=["nobody"])
    monkeypatch.setattr(keeping, "LARGEST_BYTES", 1000)
    with pytest.raises(ValueError, match="1,000 is the most: name fewer whole trials"):
        keep_run(run, tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    (tmp_path / "kept").mkdir()
    with pytest.raises(ValueError, match="exists: choose another name"):
        keep_run(run, tmp_path / "kept")


def test_a_run_that_goes_on_is_not_kept(tmp_path):
    living = Run.create(tmp_path, campaign="c", run_name="r", config={}, provenance={}, num_steps=1)
    with pytest.raises(ValueError, match="keep it when it has ended"):
        keep_run(Run.open(living.path), tmp_path / "kept")
    living.close()
