"""The campaign notebook on a run written by hand: it shows every part, and its last cell fails a run that is
wrong.
"""

import os
import re
from pathlib import Path

import pytest

from t1core.campaign.notebook import CellFailed, run_notebook
from t1core.store import Run
from tests.notebooks.run_by_hand import write_run

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "campaign.ipynb"


def test_it_executes_on_a_stored_run_and_shows_figures_tables_and_trials(tmp_path):
    run = write_run(tmp_path)
    executed = run_notebook(NOTEBOOK, parameters={"run_path": str(run.path)}, output=tmp_path / "out.ipynb")
    page = executed.html.read_text()
    assert page.count('src="data:image/png;base64') == 7
    assert 'alt="Mean reward ' in page
    assert "No description" not in page
    assert page.count("<iframe") == 2
    assert "<script>alert(1)" not in page
    assert "BROKEN" not in page
    budget = dict(re.findall(r"^ *(generate|box|grade|train|driver|unused) +(-?[0-9.]+)", page, re.M))
    # A step takes 4 s of wall time on every usable core; 5.1 CPU seconds of that are accounted for.
    unused = 4 * len(os.sched_getaffinity(0)) - 5.1
    parts = {"generate": 1.0, "box": 0.5, "grade": 2.0, "train": 1.5, "driver": 0.1, "unused": unused}
    assert {part: float(seconds) for part, seconds in budget.items()} == pytest.approx(parts)
    assert "16 launched = 8 accepted, 0 surplus, 0 quarantined, 0 empty, 4 cut, 4 failed; all stored" in page
    assert len(list((run.path / "figures").glob("*.svg"))) == 7
    assert Run.open(run.path).metrics("train").shape[0] == 4


def test_a_run_whose_tokens_drifted_fails_in_the_last_cell(tmp_path):
    run = write_run(tmp_path, changes={"tito/drift_frac": 0.001})
    with pytest.raises(CellFailed, match="drift exactly 0"):
        run_notebook(
            NOTEBOOK, parameters={"run_path": str(run.path)}, output=tmp_path / "out.ipynb", html=False
        )
