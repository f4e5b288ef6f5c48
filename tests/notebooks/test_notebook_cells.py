"""Cells run in this process: parameters are checked as elsewhere, and a cell that fails is named."""

import pytest

from t1core.campaign.notebook_cells import NotebookCellFailed, run_cells
from tests.notebooks.written_notebook import write_notebook


def test_cells_share_one_namespace_and_parameters_win_over_defaults(tmp_path, capsys):
    path = write_notebook(tmp_path / "n.ipynb", "twice = 2 * seed\nprint('said')", "answer = twice + 1")
    assert run_cells(path, parameters={})["answer"] == 1
    assert run_cells(path, parameters={"seed": 5})["answer"] == 11
    assert capsys.readouterr().out == ""


def test_a_failing_cell_and_a_wrong_parameter_are_named(tmp_path):
    path = write_notebook(tmp_path / "n.ipynb", "total = 1", "assert total < seed, 'too little'")
    with pytest.raises(NotebookCellFailed, match=r"n\.ipynb: cell 6 failed: AssertionError: too little"):
        run_cells(path, parameters={})
    with pytest.raises(ValueError, match="no parameter sed"):
        run_cells(path, parameters={"sed": 1})
    with pytest.raises(ValueError, match="is str, expected int"):
        run_cells(path, parameters={"seed": "1"})
