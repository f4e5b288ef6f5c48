"""The routing-gap notebook on the kept measurement, and the kept figure against it."""

import json
from pathlib import Path

import pandas as pd

from t1core.campaign.notebook import run_notebook
from t1core.view import figure_routing_gap
from t1core.view.keep import save_figure

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "figures" / "results" / "routing_gap.parquet"


def test_it_shows_the_kept_measurement_and_its_controls_hold(tmp_path):
    executed = run_notebook(
        ROOT / "notebooks" / "routing_gap.ipynb",
        parameters={"result_path": str(RESULT)},
        output=tmp_path / "out.ipynb",
    )
    page = executed.html.read_text()
    assert " layers, bf16 engine: " in page
    assert "BROKEN" not in page and "a dense model never flips" in page


def test_the_kept_figure_is_drawn_from_the_kept_measurement(tmp_path):
    kept = json.loads((ROOT / "figures" / "manifest.json").read_text())["routing_gap"]
    figure = figure_routing_gap(pd.read_parquet(RESULT))
    assert figure.data_sha256 == kept["data_sha256"]
    assert save_figure(figure, tmp_path / "again") == kept["files_sha256"]
