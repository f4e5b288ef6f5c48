"""The analyses: each runs and its assertions hold, its figures are the kept ones, and a planted fault makes it fail."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

from t1core.analysis import (
    check_capacity,
    check_context,
    check_fidelity,
    check_rewards,
    check_scores,
    check_throughput,
    check_warm_critic,
)
from t1core.campaign.kept_figures import check, draw, read_analyses
from t1core.campaign.notebook import run_notebook

ROOT = Path(__file__).resolve().parents[2]
ANALYSES = sorted((ROOT / "notebooks" / "analyses").glob("*.ipynb"))
MANIFEST = json.loads((ROOT / "figures" / "manifest.json").read_text())


@pytest.fixture(scope="module")
def drawn():
    """Every figure, drawn in this process; the last cell of each notebook has then held."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return {one.name: one for one in draw(read_analyses())}


def test_every_analysis_is_in_the_list_and_draws_the_data_of_the_kept_figures(drawn):
    listed = {one["notebook"] for one in yaml.safe_load((ROOT / "figures" / "analyses.yaml").read_text())}
    assert {str(path.relative_to(ROOT)) for path in ANALYSES} <= listed
    for name, one in drawn.items():
        entry = MANIFEST[name]
        assert one.figure.data_sha256 == entry["data_sha256"], f"{name}: make it again with t1 figures"
        assert dict(one.inputs) == entry["inputs_sha256"], name
        assert dict(one.measured_at) == entry["measured_at"], name
        assert one.inputs, f"{name} names no input"


def test_every_figure_beside_quoted_numbers_says_what_is_quoted_measured_or_computed(drawn):
    for name, one in drawn.items():
        if one.notebook.startswith("notebooks/analyses/") and not one.notebook.endswith("/run.ipynb"):
            assert {"quoted", "measured", "computed"} & _words(one.figure), name


def _words(figure) -> set[str]:
    texts = [figure.get_suptitle()]
    for axes in figure.axes:
        texts += [text.get_text() for text in (*axes.texts, *axes.get_yticklabels(), axes.xaxis.label)]
        if legend := axes.get_legend():
            texts += [text.get_text() for text in (*legend.get_texts(), legend.get_title())]
    return set(re.findall(r"[a-z]+", " ".join(texts).lower()))


@pytest.mark.slow
@pytest.mark.parametrize("path", ANALYSES, ids=lambda path: path.stem)
def test_each_analysis_runs_through_papermill(path, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = run_notebook(path, parameters={}, output=tmp_path / "out.ipynb").html.read_text()
    assert "BROKEN" not in page and "No description" not in page


@pytest.mark.slow
def test_every_kept_figure_and_the_ledger_are_the_same_bytes_when_made_again(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert {name: change for name, change in check(say=print).items() if change != "same"} == {}


def _broken(checks) -> list[str]:
    return [check.claim for check in checks if not check.holds]


def test_planted_faults_are_found():
    good = {"base to SFT": 0.75, "SFT to T1": 1.97}
    assert _broken(check_scores(t1=0.64, tasks=89, solved=57, se_points=5.09, errors=good)) == []
    assert (
        len(
            _broken(
                check_scores(t1=0.635, tasks=89, solved=57, se_points=2.9, errors=good | {"SFT to T1": 3.0})
            )
        )
        == 3
    )

    variance = pd.DataFrame({"critic": [0.1, 0.2, 0.3, 0.4], "num_tests_baseline": [0.0, 0.1, 0.1, 0.2]})
    assert _broken(check_warm_critic(variance, cold=-33.6)) == []
    assert len(_broken(check_warm_critic(variance.assign(critic=-40.0), cold=-33.6))) == 3

    gap = {"run": pd.DataFrame({"replayed": [1.0], "free": [2.0]})}
    shares = {"drift": 0.0, "delivered": 100.0}
    sizes = pd.DataFrame({"encoding": ["packed", "the least possible"], "bytes": [318.0, 291.2]})
    assert _broken(check_fidelity(gap, shares=shares, sizes=sizes, quoted_bytes=1536)) == []
    swapped = {"run": gap["run"].rename(columns={"replayed": "free", "free": "replayed"})}
    drifted = check_fidelity(swapped, shares={"drift": 0.1, "delivered": 99.0}, sizes=sizes, quoted_bytes=384)
    assert len(_broken(drifted)) == 4


def test_planted_faults_of_machines_and_rewards_are_found():
    terms = pd.DataFrame({"plan": ["a"], "term": ["logits"], "gib": [29.84]})
    sweep = pd.DataFrame({"optimiser_gib": [20.3, 20.3]})
    operator, peaks = pd.DataFrame({"is_bit_exact": [True]}), pd.DataFrame({"residual_gib": [0.03]})
    held = check_capacity(terms, logits={"a": 29.8}, sweep=sweep, operator=operator, peaks=peaks)
    assert _broken(held) == []
    wrong = check_capacity(
        terms,
        logits={"a": 39.8},
        sweep=pd.DataFrame({"optimiser_gib": [1, 2]}),
        operator=~operator,
        peaks=peaks * 10,
    )
    assert len(_broken(wrong)) == 4

    times = pd.DataFrame({"total_s": [10.0], "rollout_s": [9.5], "train_s": [4.0]})
    warm = pd.DataFrame({"train_s": [9.0, 3.0]})
    lost = pd.DataFrame({"turns": [2.0, 3.0, 4.0], "lost_frac": [0.1, 0.2, 0.3]})
    quoted = {"rollout": 16, "train": 41, "step": 57}
    assert _broken(check_throughput(times, warm=warm, lost=lost, quoted=quoted)) == []
    hidden = check_throughput(
        times * [1.5, 1, 1], warm=warm[::-1], lost=lost * [1, -1], quoted=quoted | {"step": 41}
    )
    assert len(_broken(hidden)) == 4

    table = pd.DataFrame({"kind": ["dense", "binary"], "reward": [2.75, 1.0]})
    pays = pd.DataFrame(
        {"shaping": ["none", "additive", "multiplicative"], "farming_pays": [True, True, False]}
    )
    assert _broken(check_rewards(table, pays=pays, largest=2.75)) == []
    assert (
        len(_broken(check_rewards(table, pays=pays.assign(farming_pays=[True, True, True]), largest=1.0)))
        == 2
    )

    regions = pd.DataFrame(
        {
            "bound": ["ours", "longest feasible", "asked from", "seen", "window"],
            "tokens": [69_632, 77_824, 78_016, 78_541, 86_016],
        }
    )
    refusal = "lies outside the feasible region"
    assert _broken(check_context(regions, asked=8192, refusal=refusal)) == []
    assert len(_broken(check_context(regions, asked=4000, refusal=""))) == 2
