"""The claims notebook on results whose numbers were written by hand."""

from pathlib import Path

import pandas as pd
import pytest

from t1core.analysis import RunFrames, Verdict
from t1core.campaign.claim import read_claim
from t1core.campaign.claim_results import ClaimResults, keep_results
from t1core.campaign.notebook import run_notebook
from t1core.store import RunState, collect_provenance
from t1core.view import figure_arms, figure_contrasts
from tests.notebooks.run_by_hand import fill_run, open_run

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "claim.ipynb"
CLAIM = ROOT / "papermill" / "claims" / "reward.yaml"


@pytest.fixture
def results(tmp_path):
    """Two seeds of two arms: the binary one passes 1 test of 4 in half of the held-out trials, the dense one 3."""
    frames, provenance = {}, {}
    for arm, passed in (("dense", 3), ("binary", 1)):
        for seed in (0, 1):
            run = open_run(tmp_path / "runs" / "claims" / f"{arm}-{seed}")
            fill_run(run, steps=4, passed=passed)
            run.close(RunState.FINISHED)
            config = run.config() | {"seed": seed}
            frames[arm, seed] = RunFrames(config, run.metrics("train"), run.trials())
            provenance[arm, seed] = collect_provenance()
    path = tmp_path / "reward.zip"
    keep_results(read_claim(CLAIM), ClaimResults("full", frames, provenance, ("ratio seed 0",)), path)
    return path


def test_it_states_the_claim_quotes_and_judges(tmp_path, results):
    executed = run_notebook(
        NOTEBOOK,
        parameters={"name": "reward", "results": [str(results)]},
        output=tmp_path / "out.ipynb",
    )
    page = executed.html.read_text()
    assert "quoted      binary on TMax-15k" in page and "refuted by" in page
    # two thirds of the held-out trials pass 1 instead of 3 tests: -2/3 * 2/20, in both seeds alike
    assert "binary - dense, heldout_tests: -0.0667 [-0.0667, -0.0667]" in page
    assert "expected lower: held here" in page and "ratio - dense, heldout_tests: not run" in page
    assert f"verdict: {Verdict.UNDECIDED}; needs scale: " in page and "not finished: ratio seed 0" in page
    assert "BROKEN" not in page and 'alt="reward: undecided at this size"' in page


def test_figures_of_nothing_say_so():
    empty = pd.DataFrame(columns=["arm", "seed", "step", "value"])
    assert b"<svg" in figure_contrasts([], title="x").svg()
    assert b"<svg" in figure_arms(empty, what="x", title="x").svg()
