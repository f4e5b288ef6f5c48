"""Runs written by older versions still open. The fixture holds hand-made records, not measurements."""

import math
import shutil
from pathlib import Path

import pytest

from t1core.store import Run, RunState

FIXTURES = sorted((Path(__file__).parent / "fixtures" / "fixture").iterdir())


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_a_run_of_each_version_opens_in_all_its_parts(path, tmp_path):
    # A copy without the empty folders, which git doesn't keep.
    copy = tmp_path / "run"
    shutil.copytree(path, copy)
    for name in ("checkpoints", "logs", "notebooks", "figures"):
        shutil.rmtree(copy / name, ignore_errors=True)
    run = Run.open(copy)
    assert run.config() == {"seed": 7}
    assert run.provenance() == {"fixture": True}
    assert run.status().state is RunState.FINISHED
    metrics = run.metrics()
    assert metrics.loc[0, "reward/mean"] == 0.1
    assert math.isnan(metrics.loc[0, "critic/explained_variance"])
    assert run.trials()["outcome"].tolist() == ["accepted", "accepted", "failed"]
    assert run.turns("a")["response"].tolist() == ['{"commands": ["ls 0"]}', '{"commands": ["ls 1"]}']
    assert run.tests("b")["status"].tolist() == ["passed"] * 4
    assert run.tokens(0, trial_id="b")["values"].tolist()[-1] == 1.0
    assert run.batch(0)[0].routes(1).tolist() == [
        [[4 * j, 4 * j + 1], [4 * j + 2, 4 * j + 3]] for j in range(6)
    ]
    assert run.failures()["kind"].tolist() == ["engine_dead"]
    assert run.vocabulary()[1] == "a"
    with Run.resume(copy) as again:
        again.record_metrics({"reward/mean": 0.2}, step=1)
    assert again.status().attempt == 2
