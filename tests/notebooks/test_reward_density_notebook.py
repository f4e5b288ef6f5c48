"""The notebook on binary against counted rewards: on a made-up file, on the kept aggregates, and the kept figure."""

import json
from pathlib import Path

from t1core.analysis import RewardDensity
from t1core.campaign.notebook import run_notebook
from t1core.view import figure_reward_density
from t1core.view.keep import save_figure
from tests.analysis.counted_by_hand import write_trials

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "reward_density.ipynb"
RESULT = ROOT / "figures" / "results" / "reward_density.json"


def test_it_measures_a_file_of_trials_and_says_where_they_come_from(tmp_path):
    trials = write_trials(tmp_path / "trials.json")
    executed = run_notebook(
        NOTEBOOK,
        parameters={"result_path": str(tmp_path / "result.json"), "trials_path": str(trials)},
        output=tmp_path / "out.ipynb",
    )
    page = executed.html.read_text()
    assert "made up" in page and "BROKEN" not in page and "every record is accounted for" in page
    measured = RewardDensity.from_json((tmp_path / "result.json").read_text())
    assert measured.counts["records"] == 19


def test_the_kept_figure_is_drawn_from_the_kept_aggregates(tmp_path):
    kept = json.loads((ROOT / "figures" / "manifest.json").read_text())["reward_density"]
    figure = figure_reward_density(RewardDensity.from_json(RESULT.read_text()))
    assert figure.data_sha256 == kept["data_sha256"]
    assert save_figure(figure, tmp_path / "again") == kept["files_sha256"]
