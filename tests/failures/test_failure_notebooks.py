"""Each failure case's notebook runs, and its symptom has a line in the troubleshooting page that leads there."""

from pathlib import Path

import pytest

from t1core.campaign.notebook import CellFailed, run_notebook

ROOT = Path(__file__).parents[2]
CASES = {path.stem: path for path in sorted((ROOT / "notebooks" / "failures").glob("*.ipynb"))}
# Those that import torch or Megatron in a kernel of their own; what they call is tested beside this file.
HEAVY = {
    *("metric_reducer", "token_cap", "critic_over_actor", "gloo_timeout", "compiling"),
    "calibrated_critic",
}


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.slow if name in HEAVY else ()) for name in CASES]
)
def test_the_case_is_seen_to_happen_and_to_be_stopped(tmp_path, case):
    run_notebook(CASES[case], parameters={}, output=tmp_path / "out.ipynb", html=False)


@pytest.mark.parametrize(
    ("case", "parameters", "broken"),
    [
        ("summary_room", {"num_dialogues": 200, "answer": 4096}, "nearly every summary failed"),
        ("trial_names", {"dies": 0.0}, "some rewards were another model's"),
        ("open_files", {"soft": 512}, "the scheduler stalls"),
        ("skim_counter", {"launched": 40, "accept": 40}, "the slow family loses more"),
    ],
)
def test_its_last_cell_can_fail(tmp_path, case, parameters, broken):
    with pytest.raises(CellFailed, match=broken):
        run_notebook(CASES[case], parameters=parameters, output=tmp_path / "out.ipynb", html=False)


def test_every_case_is_found_from_its_symptom():
    page = (ROOT / "docs" / "TROUBLESHOOTING.md").read_text()
    assert [name for name in CASES if f"notebooks/failures/{name}.ipynb" not in page] == []
