"""The synthesis notebook on the kept summary, and the kept figure against it."""

import json
from pathlib import Path

from t1core.campaign.notebook import run_notebook
from t1core.pools.synthesis.table import Summary
from t1core.view import figure_synthesis
from t1core.view.keep import save_figure

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "figures" / "results" / "synthesis.json"


def test_it_shows_the_kept_summary_and_what_must_hold_holds(tmp_path):
    executed = run_notebook(
        ROOT / "notebooks" / "synthesis.ipynb",
        parameters={"result_path": str(RESULT)},
        output=tmp_path / "out.ipynb",
    )
    page = executed.html.read_text()
    assert "candidates kept; in" in page
    assert "BROKEN" not in page and "no round keeps more than it tried" in page


def test_the_kept_figure_is_drawn_from_the_kept_summary(tmp_path):
    kept = json.loads((ROOT / "figures" / "manifest.json").read_text())["synthesis"]
    figure = figure_synthesis(Summary.from_json(RESULT.read_text()))
    assert figure.data_sha256 == kept["data_sha256"]
    assert save_figure(figure, tmp_path / "again") == kept["files_sha256"]
