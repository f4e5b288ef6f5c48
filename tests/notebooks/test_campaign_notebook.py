"""The campaign notebook on a run written by hand: it shows every part, and its last cell fails a run that is
wrong.
"""

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
    assert "16 launched = 8 accepted, 0 surplus, 0 quarantined, 4 cut, 4 failed; all stored" in page
    assert len(list((run.path / "figures").glob("*.svg"))) == 7
    assert Run.open(run.path).metrics("train").shape[0] == 4


def test_a_run_whose_tokens_drifted_fails_in_the_last_cell(tmp_path):
    run = write_run(tmp_path, changes={"tito/drift_frac": 0.001})
    with pytest.raises(CellFailed, match="drift exactly 0"):
        run_notebook(
            NOTEBOOK, parameters={"run_path": str(run.path)}, output=tmp_path / "out.ipynb", html=False
        )
