"""The notebook rules: each is broken once, and the notebooks in git keep them all."""

from pathlib import Path

import nbformat
import pytest

from t1core.campaign.notebook_rules import check_notebook
from tests.notebooks.written_notebook import LAST, write_notebook

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_notebooks_in_git_are_tidy(path):
    assert check_notebook(path) == []


def test_a_tidy_notebook_has_no_complaints(tmp_path):
    assert check_notebook(write_notebook(tmp_path / "n.ipynb", "total = seed + 1", last=LAST)) == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("class A:\n    pass", "cell 4: class A belongs in the package"),
        ("def f(x):\n    return x", "cell 4: function f is longer than a line: it belongs in the package"),
        ("!ls", "cell 4: no shell and no magics"),
        ("%matplotlib inline", "cell 4: no shell and no magics"),
        ("import sys\nsys.path.insert(0, '.')", "cell 4: no sys.path: install the package"),
        ("import os\nos.system('ls')", "cell 4: no shell: launch through the package"),
        (
            "\n".join(f"a{n} = {n}" for n in range(16)),
            "cell 4: 16 lines; at most 15, the rest belongs in the package",
        ),
        ("a = ", "cell 4: no Python: invalid syntax, line 1"),
    ],
)
def test_code_that_belongs_elsewhere_is_named(tmp_path, source, says):
    assert check_notebook(write_notebook(tmp_path / "n.ipynb", source, last=LAST)) == [says]


def _edited(tmp_path, edit):
    path = write_notebook(tmp_path / "n.ipynb", "total = seed + 1", last=LAST)
    notebook = nbformat.read(path, as_version=4)
    edit(notebook)
    nbformat.write(notebook, path)
    return check_notebook(path)


def test_what_git_should_not_hold_is_named(tmp_path):
    def run_it(notebook):
        notebook.cells[3].execution_count = 1
        notebook.cells[3].metadata["papermill"] = {}
        notebook.metadata["papermill"] = {}

    assert _edited(tmp_path, run_it) == [
        "metadata: keep a kernelspec named python3 and nothing of ['papermill']",
        "cell 4: metadata ['papermill'] does not belong in git",
        "cell 4: strip outputs and execution counts",
    ]


def test_a_missing_sentence_question_or_ending_is_named(tmp_path):
    def cut(notebook):
        notebook.cells[0].source = "# A title"
        del notebook.cells[2]
        notebook.cells.pop()

    assert _edited(tmp_path, cut) == [
        "cell 1: after the title, ask the question and say what a good answer looks like",
        "the last cell prints the provenance and runs the metric assertions",
        "cell 3: say in a sentence before the call what it is for",
    ]


def test_a_parameter_without_help_and_a_derived_one_are_named(tmp_path):
    one = write_notebook(tmp_path / "a.ipynb", "total = 1", parameters="seed: int = 0", last=LAST)
    assert check_notebook(one) == ["cell 2: parameter seed has no help comment"]
    two = write_notebook(
        tmp_path / "b.ipynb", "total = 1", parameters="seed: int = 1 + len('x')  # x", last=LAST
    )
    assert "is derived" in check_notebook(two)[0]
