"""Exporting a stored trial and ingesting files of other programs."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from t1core.campaign.interchange import export_harbor_trial, export_trial, ingest_lines
from t1core.campaign.report import stored_trial
from t1core.cli import app
from t1core.store import Run
from t1core.store.token_file import read_rows
from t1core.view import trial_page
from tests.store.records_by_hand import batch, trial


@pytest.fixture
def run(tmp_path):
    run = Run.create(tmp_path, campaign="demo", run_name="r", config={}, provenance={})
    run.record_vocabulary(["<0>", "a", "b", "c", "d", "e", "f", "g"])
    run.record_trajectories([trial("a"), trial("b")], step=0)
    made, spans = batch("a")
    run.record_tokens(made, per_token={}, spans=spans)
    return run


@pytest.mark.parametrize("form", ["slime", "verl"])
def test_a_stored_row_comes_back_through_another_programs_file(run, tmp_path, form):
    file, written = tmp_path / "samples.json", tmp_path / "rows.safetensors"
    file.write_text(export_trial(run, "a", form=form))
    assert list(ingest_lines(file, form=form, output=written)) == [
        "rows         1: 7 tokens, 3 of them trained",
        f"written      {written}",
    ]
    (one,), (other,) = run.rows(0), read_rows(written, completed={"a"})
    for name in ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts", "weight_versions"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.spans, one.status, one.reward) == (other.spans, other.status, other.reward)


def test_a_stored_trial_goes_through_atif_and_assembles_again(run, tmp_path):
    file = tmp_path / "trajectory.json"
    file.write_text(export_trial(run, "a", form="atif-v1.7"))
    document = json.loads(file.read_text())
    assert document["schema_version"] == "ATIF-v1.7" and document["steps"][0]["message"] == "abc"
    assert document["extra"]["reward"] == 0.1
    assert list(ingest_lines(file, form="atif")) == [
        "positions    7: aligned 7 (100.00%), retokenised 0 (0.00%), placeholder 0 (0.00%)",
        "drift        0 of 3 trained tokens (0.00%)",
        "delivered    3 of 3 sampled tokens (100.00%)",
        "boundaries   1: strict 1 (100.00%), normalized 0 (0.00%), retokenized 0 (0.00%), split 0 (0.00%)",
        "rows         1: 7 tokens, 3 of them trained",
    ]


def test_a_harbor_result_is_read_with_its_reward(tmp_path):
    details = [{"prompt_token_ids": [[1, 2]], "completion_token_ids": [[3]], "logprobs": [[-1.5]]}]
    result = {
        "trial_name": "t",
        "agent_result": {"rollout_details": details},
        "verifier_result": {"rewards": {"reward": 0.5}},
    }
    file, written = tmp_path / "result.json", tmp_path / "rows.safetensors"
    file.write_text(json.dumps(result))
    list(ingest_lines(file, form="harbor", output=written, weight_version=4))
    (row,) = read_rows(written, completed=())
    assert (row.rollout_id, row.reward, row.tokens.tolist()) == ("t", 0.5, [1, 2, 3])
    assert row.weight_versions.tolist() == [-1, -1, 4]
    file.write_text(json.dumps(details))
    with pytest.raises(ValueError, match="no reward; give --reward"):
        list(ingest_lines(file, form="harbor"))
    file.write_text(json.dumps({"agent_result": None}))
    with pytest.raises(ValueError, match="collect_rollout_details=true"):
        list(ingest_lines(file, form="harbor"))


def test_both_directions_are_commands(run, tmp_path):
    told = CliRunner().invoke(app, ["export", str(run.path), "a", "--format", "verl"])
    assert told.exit_code == 0 and json.loads(told.stdout)[0]["response_ids"] == [4, 5, 6, 7]
    file = tmp_path / "samples.json"
    file.write_text(told.stdout)
    told = CliRunner().invoke(app, ["ingest", str(file), "--format", "verl", "--rollout-id", "x"])
    assert told.exit_code == 0 and told.stdout == "rows         1: 7 tokens, 3 of them trained\n"


def test_what_cannot_be_exported_says_why(run):
    with pytest.raises(ValueError, match="no trial 'z'"):
        export_trial(run, "z", form="slime")
    with pytest.raises(ValueError, match="b was not trained"):
        export_trial(run, "b", form="verl")
    with pytest.raises(ValueError, match="--format csv is not one of"):
        export_trial(run, "a", form="csv")


def test_a_trial_written_as_harbors_opens_in_our_viewer_with_the_same_story(run, tmp_path):
    directory = export_harbor_trial(run, "a", tmp_path / "harbor-a")
    ours, theirs = run.trajectory("a"), stored_trial(directory, None)
    assert theirs.turns["response"].tolist() == ours.turns["response"].tolist()
    assert theirs.turns["commands"].tolist() == ours.turns["commands"].tolist()
    assert theirs.tests["status"].tolist() == ours.tests["status"].tolist()
    assert theirs.trial["reward"] == ours.trial["reward"]
    assert (directory / "verifier" / "reward.txt").read_text() == "0.1\n"
    page = trial_page(theirs).html
    for text in ("Harbor, t1core", "2 turns", "ls 0"):
        assert text in page


def test_a_harbor_trial_is_never_written_over_another(run, tmp_path):
    export_harbor_trial(run, "a", tmp_path / "t")
    with pytest.raises(ValueError, match="not empty"):
        export_harbor_trial(run, "b", tmp_path / "t")
    with pytest.raises(ValueError, match="no trial 'z'"):
        export_harbor_trial(run, "z", tmp_path / "z")


def test_a_path_and_a_trial_id_must_go_together(run, tmp_path):
    with pytest.raises(ValueError, match="--trial"):
        stored_trial(run.path, None)
    directory = export_harbor_trial(run, "a", tmp_path / "t")
    with pytest.raises(ValueError, match="leave it out"):
        stored_trial(directory, "a")
