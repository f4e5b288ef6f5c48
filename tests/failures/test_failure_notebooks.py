"""Each failure case: its notebook runs, its last cell can fail, its symptom leads there from the page of symptoms."""

from pathlib import Path

import nbformat
import pytest

from t1core.campaign.notebook import run_notebook

ROOT = Path(__file__).parents[2]
CASES = {path.stem: path for path in sorted((ROOT / "notebooks" / "failures").glob("*.ipynb"))}
# Those that import torch or Megatron in a kernel of their own; what they call is tested beside this file.
HEAVY = {
    *("metric_reducer", "token_cap", "critic_over_actor", "gloo_timeout", "compiling"),
    "calibrated_critic",
}


def cases(*given):
    """(case, ...) as parameters, heavy ones marked slow."""
    return [pytest.param(*each, marks=pytest.mark.slow if each[0] in HEAVY else ()) for each in given]


@pytest.mark.parametrize("case", cases(*((name,) for name in CASES)))
def test_the_case_is_seen_to_happen_and_to_be_stopped(tmp_path, case):
    run_notebook(CASES[case], parameters={}, output=tmp_path / "out.ipynb", html=False)


def run_cells(path, parameters):
    """The code of a notebook in this process, without a kernel."""
    space = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, f"{path.name} {cell.id}", "exec"), space)
        if "parameters" in cell.metadata.get("tags", []):
            assert parameters.keys() <= space.keys()
            space |= parameters


@pytest.mark.parametrize(
    ("case", "parameters", "broken"),
    cases(
        ("additive_penalty", {"steps": 8}, "the penalty lengthens trials"),
        ("data_parallel_one", {"gpu_memory_gib": 141.0}, "no number of stages fits"),
        ("halved_budget", {"cap_s": 1800.0}, "with their time all finish"),
        ("metric_reducer", {"num_rows": 1}, "it changes with packing"),
        ("one_loop_lock", {"at_once": 9}, "82 of 89 are lost"),
        ("open_files", {"soft": 512}, "the scheduler stalls"),
        ("os_killer", {"need_mib": 20}, "it is killed"),
        ("skim_counter", {"launched": 40, "accept": 40}, "the slow family loses more"),
        ("summary_room", {"answer": 4096}, "nearly every summary failed"),
        ("token_cap", {"longest": 300}, "the largest is the longest row"),
        ("trial_names", {"dies": 0.0}, "some rewards were another model's"),
    ),
)
def test_its_last_cell_fails_where_the_case_does_not_happen(case, parameters, broken):
    with pytest.raises(AssertionError, match=broken):
        run_cells(CASES[case], parameters)


def test_every_case_is_found_from_its_symptom():
    page = (ROOT / "docs" / "TROUBLESHOOTING.md").read_text()
    assert [name for name in CASES if f"notebooks/failures/{name}.ipynb" not in page] == []
    assert len(CASES) == 15
