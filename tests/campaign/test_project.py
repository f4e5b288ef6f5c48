"""A new project, its dry run, and what `t1 config` says of settings."""

import json
import os

import pytest
from typer.testing import CliRunner

from t1core.campaign.project import init_project
from t1core.campaign.rehearsal import campaign_lines, notebook_lines
from t1core.cli import app
from t1core.config import CampaignConfig, load_config
from t1core.config.explain import difference_lines, explain
from t1core.config.load import known_keys


@pytest.fixture
def project(tmp_path, monkeypatch):
    init_project(tmp_path / "mine", preset="smoke")
    monkeypatch.chdir(tmp_path / "mine")
    return tmp_path / "mine"


@pytest.fixture
def any_machine(monkeypatch):
    """The machine's own checks hold; they are tested where they are made."""
    monkeypatch.setattr("t1core.campaign.preflight.check_machine", lambda config: None)


def test_a_new_project_has_the_presets_settings_under_its_own_name(project):
    config = load_config("campaign.toml")
    assert config == load_config("smoke", name="mine")
    assert sorted(os.listdir(project)) == [
        ".gitignore", "README.md", "campaign.ipynb", "campaign.toml", "campaign.yaml", "compare.ipynb",
    ]  # fmt: skip


def test_its_campaign_file_would_run_at_once(project, any_machine):
    told = list(notebook_lines(project / "campaign.yaml", changes=["seed=3"]))
    assert f"notebook  {project / 'campaign.ipynb'}" in told
    assert "  preset = 'campaign.toml'" in told and "  seed = 3" in told
    assert "  run_root = 'runs'  (default)" in told
    assert f"run     {project / 'runs' / 'mine'}/<name of the run>" in told
    assert told[-1] == "nothing was started or written"
    assert not (project / "runs").exists() and not (project / ".t1core").exists()


def test_a_dry_run_refuses_what_the_campaign_would(project, any_machine):
    with pytest.raises(ValueError, match="no parameter sed"):
        list(notebook_lines(project / "campaign.yaml", changes=["sed=3"]))
    with pytest.raises(ValueError, match="unknown key"):
        list(notebook_lines(project / "campaign.yaml", changes=['overrides=["train.nothing=1"]']))
    (project / "empty").mkdir()
    with pytest.raises(ValueError, match="empty"):
        list(campaign_lines(load_config("campaign.toml", ["tasks.pool=empty"])))


def test_a_machine_that_is_too_small_is_refused_in_a_dry_run(project):
    told = CliRunner().invoke(
        app, ["campaign", "smoke", "--dry-run", "--set", "cluster.min_free_disk_mb=999999999"]
    )
    assert isinstance(told.exception, ValueError) and "MB of disk are free" in str(told.exception)


def test_a_folder_in_use_and_a_name_that_no_campaign_can_have_are_refused(project, tmp_path):
    with pytest.raises(ValueError, match="not an empty folder"):
        init_project(project, preset="smoke")
    with pytest.raises(ValueError, match="name="):
        init_project(tmp_path / "my project", preset="smoke")
    assert not (tmp_path / "my project").exists()


def test_every_setting_explains_itself():
    config = CampaignConfig()
    silent = [key for key in known_keys() if not explain(key, config)[2].strip()]
    # The seed's and steps' lines are there; a setting without a docstring would be silent.
    assert silent == []


def test_a_setting_is_explained_with_its_value_default_and_bounds():
    told = explain("num_steps", load_config("smoke"))
    assert told == ["num_steps = 3  (default 40)", "  int, >= 1", "  Training steps."]
    assert "one of exact, weights" in explain("checkpoint_content", CampaignConfig())[1]
    section = explain("evaluation", CampaignConfig())
    assert section[0] == "evaluation: a section"
    assert (
        "  evaluation.every = 0  # Evaluate every so many steps; 0: only before the first step and after the last."
        in section
    )
    with pytest.raises(ValueError, match=r"did you mean train\.eps_clip\?"):
        explain("train.eps_clipp", CampaignConfig())


def test_a_difference_to_a_preset_is_its_settings_that_differ():
    ours = load_config("quickstart", ["train.actor.lr=2e-5", "seed=4"])
    assert difference_lines(ours, load_config("quickstart"), name="quickstart") == [
        "seed = 4  (quickstart: 0)",
        "train.actor.lr = 2e-05  (quickstart: 0.0001)",
    ]
    told = CliRunner().invoke(app, ["config", "quickstart", "--diff", "quickstart"])
    assert told.output == "as in quickstart\n"
    told = CliRunner().invoke(app, ["config", "smoke", "--explain", "reward.kind"])
    assert told.output.startswith("reward.kind = ")
    assert json.loads(CliRunner().invoke(app, ["config", "smoke"]).output)["num_steps"] == 3
