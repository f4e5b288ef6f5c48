"""Runs side by side in the terminal: the notebook's numbers, and a warning where the harness differs."""

import pytest
from typer.testing import CliRunner

from t1core.analysis import Difference, RunFrames, compare_runs, differences
from t1core.campaign.comparison import comparison_lines, table_lines
from t1core.campaign.report import trial_gaps, trial_lines
from t1core.cli import app
from tests.analysis.frames_by_hand import metrics_frame, trials_frame
from tests.notebooks.run_by_hand import write_run


def _frames(**config):
    rows = [{"step": step, "reward": 0.1 * step + 0.001 * n} for step in range(8) for n in range(4)]
    gaps = [1.0] * 6 + [0.01, 0.03]
    metrics = metrics_frame(
        8, **{"critic/explained_variance": [0.0] * 6 + [0.2, 0.4], "logprob_gap/abs_mean": gaps}
    )
    return RunFrames({"seed": 0} | config, metrics, trials_frame(*rows))


def test_explained_variance_and_gap_have_intervals_over_the_last_quarters_steps():
    (row,) = compare_runs({"a": _frames()}).to_dict("records")
    # Two steps: mean 0.3, standard error 0.1, t(1) = 12.706.
    assert (row["ev_last"], row["ev_low"]) == (pytest.approx(0.3), pytest.approx(0.3 - 1.2706, abs=1e-3))
    assert (row["gap_last"], row["gap_high"]) == (pytest.approx(0.02), pytest.approx(0.14706, abs=1e-4))


def test_scores_under_other_limits_are_flagged_and_other_settings_only_listed():
    one = {"agent": {"max_turns": 8}, "train": {"actor": {"lr": 1e-6}}, "name": "x", "run_root": "a"}
    two = {"agent": {"max_turns": 16}, "train": {"actor": {"lr": 2e-6}}, "name": "y", "run_root": "b"}
    assert differences({"a": one, "b": two}) == [
        Difference("agent.max_turns", {"a": 8, "b": 16}, True),
        Difference("train.actor.lr", {"a": 1e-6, "b": 2e-6}, False),
    ]
    told = list(table_lines({"a": _frames(**one), "b": _frames(**two)}))
    at = told.index("WARNING: not the same harness or limits, so scores are not comparable as they stand:")
    assert told[at + 1 :] == [
        "  agent.max_turns: a 8, b 16",
        "differ in:",
        "  train.actor.lr: a 1e-06, b 2e-06",
    ]
    same = list(table_lines({"a": _frames(**one), "b": _frames(**one)}))
    assert not any("WARNING" in line or "differ in" in line for line in same)


def test_the_command_says_what_the_notebooks_table_says(tmp_path):
    one, two = write_run(tmp_path / "one"), write_run(tmp_path / "two", steps=6)
    told = CliRunner().invoke(app, ["compare", str(one.path), str(two.path)])
    assert told.exit_code == 0, told.output
    table = compare_runs({"one": RunFrames(one.config(), one.metrics("train"), one.trials())})
    assert f"{table['reward_first'][0]:.3f} to {table['reward_last'][0]:.3f}" in told.output
    assert "heldout" in told.output and "mean over 2 runs" in told.output
    assert next(iter(comparison_lines([tmp_path / "one"]))).startswith("hand/run")


def test_trials_are_sorted_by_gap_with_those_never_trained_on_last(tmp_path):
    run = write_run(tmp_path)
    gaps = trial_gaps(run)
    # Row a of each step: trainer log-probs line - 1.5 at positions 3, 4, 6 against -0.5, -0.25, -1.
    line = [-1 + 2 * place / 13 for place in range(14)]
    by_hand = [abs(line[at] - 1.5 - rollout) for at, rollout in ((3, -0.5), (4, -0.25), (6, -1.0))]
    assert gaps["s0a"] == pytest.approx(sum(by_hand) / 3, abs=1e-5)
    (text,) = trial_lines(run, only_failed=False, sort="gap", limit=3)
    assert [text_line.split()[0] for text_line in text.splitlines()[1:]] == ["s0a", "s1a", "s2a"]
    (text,) = trial_lines(run, only_failed=True, sort="gap")
    assert all("engine_dead" in text_line for text_line in text.splitlines()[1:])
    (text,) = trial_lines(run, only_failed=False, only_unsolved=True)
    assert "s3a" not in text and "s0a" in text
    with pytest.raises(ValueError, match="--sort size is not one of gap"):
        list(trial_lines(run, only_failed=False, sort="size"))
