"""Plans that cannot work are refused before anything starts, in one message with the way out."""

import os
import resource
import shutil
import subprocess
import sys

import pytest

from t1core import cli
from t1core.campaign.campaign import run_campaign
from t1core.campaign.preflight import check_machine, check_plan
from t1core.config import load_config
from t1core.tasks.pool import Pool, write_index


def t1(*arguments, cwd, **environment):
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "t1core.cli", *arguments],
        capture_output=True, text=True, timeout=120, cwd=cwd, env=os.environ | environment,
    )  # fmt: skip


def with_settings(settings):
    return [word for override in settings for word in ("--set", override)]


def write_task(directory, *, tests="def test_a(): pass\n"):
    (directory / "tests").mkdir(parents=True)
    (directory / "instruction.md").write_text("Write hello to a.txt.\n")
    (directory / "task.toml").write_text('schema_version = "1.4"\n')
    (directory / "tests" / "test_outputs.py").write_text(tests)


def test_more_ranks_than_the_machine_carries_are_refused_with_the_setting_to_lower():
    config = load_config("smoke", ["train.data_parallel=500"])
    with pytest.raises(ValueError, match=r"500 trainer ranks .* lower the parallel degrees"):
        check_machine(config)


def test_more_boxes_than_the_descriptors_allow_are_refused():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    config = load_config("smoke", ["rollout.max_live_trials=60", "cluster.min_free_memory_mb=0"])
    check_machine(config)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with pytest.raises(ValueError, match=r"48 boxes are all that open files allows.*max_live_trials=60"):
            check_machine(config)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path):
    answer = t1("campaign", "smoke", "--set", "train.eps_clipp=0.1", cwd=tmp_path)
    assert answer.returncode == 2
    assert "train.eps_clipp=0.1: unknown key; did you mean train.eps_clip?" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_bubblewrap_a_campaign_is_refused_with_the_command_that_installs_it(tmp_path, settings):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("tmux", "setpriv", "git"):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    answer = t1("campaign", "smoke", *with_settings(settings), cwd=tmp_path, PATH=str(tools))
    assert answer.returncode == 2
    assert "bubblewrap is not installed; fix: apt-get install -y bubblewrap" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "runs").exists()


def test_an_empty_pool_is_refused_and_leaves_no_run(tmp_path, settings):
    (tmp_path / "tasks").mkdir()
    config = load_config("smoke", [*settings, f"tasks.pool={tmp_path / 'tasks'}"])
    with pytest.raises(ValueError, match=f"pool {tmp_path / 'tasks'} is empty"):
        run_campaign(config, say=print)
    assert not (tmp_path / "runs").exists()


def test_a_pool_whose_task_has_no_tests_is_refused_by_the_tasks_name(tmp_path, settings):
    write_task(tmp_path / "tasks" / "greet", tests="x = 1\n")
    config = load_config("smoke", [*settings, f"tasks.pool={tmp_path / 'tasks'}"])
    with pytest.raises(ValueError, match=r"greet.*test"):
        run_campaign(config, say=print)
    assert not (tmp_path / "runs").exists()


def test_a_foreign_pool_needs_no_held_out_split_and_the_gap_is_said(tmp_path):
    write_task(tmp_path / "greet", tests="def test_a(): pass\n\n\ndef test_b(): pass\n")
    write_index(tmp_path)
    said = []
    check_plan(load_config("smoke"), Pool.open(tmp_path), say=said.append)
    assert [line.split("has no split ")[1] for line in said] == [
        "'heldout': it is not evaluated",
        "'heldout_family': it is not evaluated",
    ]


def test_counting_tests_where_every_task_has_one_is_refused(tmp_path):
    write_task(tmp_path / "greet")
    with pytest.raises(ValueError, match=r"nothing to count; use reward\.kind='binary'"):
        check_plan(load_config("smoke"), Pool.open(tmp_path), say=print)
    check_plan(load_config("smoke", ["reward.kind=binary"]), Pool.open(tmp_path), say=print)


def test_a_machine_error_is_one_message(tmp_path, settings, monkeypatch, capsys):
    (tmp_path / "file").write_text("not a directory")
    words = with_settings([*settings, f"run_root={tmp_path / 'file' / 'runs'}"])
    monkeypatch.setattr(sys, "argv", ["t1", "campaign", "smoke", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("t1: [Errno 20] Not a directory")
