"""The comparison notebook on two runs written by hand, and what it refuses."""

from pathlib import Path

import pytest

from t1core.campaign.notebook import CellFailed, run_notebook
from t1core.store import RunState, find_runs
from tests.notebooks.run_by_hand import write_run

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "compare.ipynb"


def test_it_compares_the_finished_runs_of_a_folder(tmp_path):
    write_run(tmp_path / "one")
    write_run(tmp_path / "two", steps=6)
    executed = run_notebook(
        NOTEBOOK, parameters={"campaign_path": str(tmp_path)}, output=tmp_path / "out.ipynb"
    )
    page = executed.html.read_text()
    assert 'alt="Reward rises, with an interval above 0, in ' in page
    assert "one/hand/run" in page and "two/hand/run" in page
    assert "BROKEN" not in page


def test_a_folder_without_finished_runs_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        find_runs(tmp_path)
    run = write_run(tmp_path)
    with pytest.raises(ValueError, match="1 runs, none failed"):
        find_runs(tmp_path, state=RunState.FAILED)
    assert [found.path for found in find_runs(tmp_path).values()] == [run.path]
    with pytest.raises(CellFailed, match="holds no run"):
        run_notebook(
            NOTEBOOK,
            parameters={"campaign_path": str(tmp_path / "none")},
            output=tmp_path / "o.ipynb",
            html=False,
        )
