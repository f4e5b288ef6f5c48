"""Kept figures: built from a list of analyses, and told apart where data, style or file have changed."""

import json

import pytest

from t1core.campaign import kept_figures
from t1core.campaign.kept_figures import draw, read_analyses
from t1core.view import style
from tests.notebooks.written_notebook import write_notebook

DRAWS = """
import pandas as pd
from t1core import analysis, view
frame = pd.DataFrame({"x": [10.0, 20.0], "value": [seed + 50.0, 51.7]})
figures = {"grpo": view.figure_grpo(frame, sft=49.4, se_points=5.1)}
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with one analysis, and a ledger that is a constant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "figures").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "data.csv").write_text("1\n")
    write_notebook(
        tmp_path / "n.ipynb",
        DRAWS,
        parameters='seed: int = 1  # x\npath: str = "data.csv"  # input\nother: str = ""  # none',
    )
    (tmp_path / "figures" / "analyses.yaml").write_text("- notebook: n.ipynb\n")
    monkeypatch.setattr(kept_figures, "ledger_page", lambda: "ledger\n")
    return tmp_path


def _lines(call):
    lines = []
    found = call(say=lines.append)
    return lines, found


def test_a_second_build_writes_the_same_bytes_and_the_manifest_names_inputs(checkout):
    assert _lines(kept_figures.build)[0][0].split() == ["new", "grpo"]
    first = {path.name: path.read_bytes() for path in (checkout / "figures").iterdir()}
    assert _lines(kept_figures.build)[0][0].split() == ["same", "grpo"]
    assert {path.name: path.read_bytes() for path in (checkout / "figures").iterdir()} == first
    assert set(first) == {"analyses.yaml", "manifest.json", "grpo.svg", "grpo.png"}
    entry = json.loads(first["manifest.json"])["grpo"]
    assert entry["notebook"] == "n.ipynb"
    assert list(entry["inputs_sha256"]) == ["data.csv"]
    assert (checkout / "docs" / "LEDGER.md").read_text() == "ledger\n"


def test_the_check_tells_data_style_and_file_apart_and_changes_nothing(checkout, monkeypatch):
    kept_figures.build(say=lambda line: None)
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    assert set(_lines(kept_figures.check)[1].values()) == {"same"}

    (checkout / "figures" / "analyses.yaml").write_text("- notebook: n.ipynb\n  parameters: {seed: 2}\n")
    assert _lines(kept_figures.check)[1]["grpo"] == "data changed"
    (checkout / "figures" / "analyses.yaml").write_text("- notebook: n.ipynb\n")

    with monkeypatch.context() as patch:
        patch.setitem(style.QUOTED, "markersize", 9)
        assert _lines(kept_figures.check)[1]["grpo"] == "style changed"

    (checkout / "figures" / "grpo.svg").write_text("edited")
    assert _lines(kept_figures.check)[1]["grpo"] == "file changed"
    (checkout / "docs" / "LEDGER.md").write_text("edited")
    assert _lines(kept_figures.check)[1]["ledger"] == "data changed"
    (checkout / "figures" / "grpo.svg").write_bytes(before[checkout / "figures" / "grpo.svg"])
    (checkout / "docs" / "LEDGER.md").write_bytes(before[checkout / "docs" / "LEDGER.md"])
    assert {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()} == before


def test_a_figure_that_no_analysis_draws_is_named_and_does_not_fail_the_check(checkout):
    kept_figures.build(say=lambda line: None)
    path = checkout / "figures" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"orphan": {}}))
    lines, found = _lines(kept_figures.check)
    assert any(line.startswith("not drawn") and "orphan" in line for line in lines)
    assert "orphan" not in found


def test_two_figures_of_one_name_and_an_entry_that_is_none_are_refused(checkout):
    (checkout / "figures" / "analyses.yaml").write_text("- notebook: n.ipynb\n- notebook: n.ipynb\n")
    with pytest.raises(ValueError, match="both draw a figure 'grpo'"):
        list(draw(read_analyses()))
    (checkout / "figures" / "analyses.yaml").write_text("- notebook: n.ipynb\n- notebook: other.ipynb\n")
    assert [one.notebook for one in read_analyses(only=["n"])] == ["n.ipynb"]
    with pytest.raises(ValueError, match=r"--only none is not a notebook of .*: choose of n, other"):
        read_analyses(only=["none"])
    (checkout / "figures" / "analyses.yaml").write_text("- notebook: n.ipynb\n  seed: 1\n")
    with pytest.raises(ValueError, match="an entry has `notebook` and may have `parameters`"):
        read_analyses()


def test_elsewhere_than_in_a_checkout_it_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="run this in a checkout"):
        read_analyses()
