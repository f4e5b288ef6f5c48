"""Plans that cannot work are refused before anything starts, in one message with the way out."""

import os
import resource
import shutil
import subprocess
import sys

import pytest

from t1core import cli
from t1core.campaign import preflight
from t1core.campaign.assets import plays_for_critic, prepare
from t1core.campaign.campaign import run_campaign
from t1core.campaign.preflight import check_machine, check_plan
from t1core.config import load_config
from t1core.tasks.index import write_index
from t1core.tasks.pool import Pool


def t1(*arguments, cwd, **environment):
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "t1core.cli", *arguments],
        capture_output=True, text=True, timeout=600, cwd=cwd, env=os.environ | environment,
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


def test_preparing_wants_the_engines_environment_only_where_it_plays_for_the_critic(tmp_path):
    absent = [
        "rollout.engine=sglang",
        f"rollout.sglang.python={tmp_path}/python",
        "cluster.min_free_memory_mb=0",
    ]
    warmed = [*absent, "model.critic_path=", "warm_start.critic_warmup_steps=2"]
    config = load_config("smoke", warmed)
    with pytest.raises(ValueError, match="there is no /"):
        check_machine(config)
    check_machine(config, starts_engine=False)
    assert plays_for_critic(config)
    for override in ("warm_start.critic_warmup_steps=0", "model.critic_path=cold", "train.load=/a"):
        assert not plays_for_critic(load_config("smoke", [*warmed, override])), override


def test_open_files_are_raised_to_what_the_boxes_take(monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    config = load_config("smoke", ["rollout.max_live_trials=60", "cluster.min_free_memory_mb=0"])
    check_machine(config)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        check_machine(config)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 64 + 60 * 4
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    monkeypatch.setattr(preflight, "raise_descriptors", lambda boxes: f"{boxes} boxes are too many")
    with pytest.raises(ValueError, match="60 boxes are too many"):
        check_machine(config)


@pytest.mark.parametrize(("hard", "most"), [(256, 48), (1024, 240)])
def test_a_hard_limit_on_open_files_is_refused_before_anything_starts(tmp_path, hard, most):
    settings = [
        "rollout.max_live_trials=300",
        "rollout.trial_deadline_s=3000",
        "cluster.min_free_memory_mb=0",
    ]
    command = [sys.executable, "-m", "t1core.cli", "campaign", "smoke", *with_settings(settings)]
    done = subprocess.run(
        ["prlimit", f"--nofile={hard}:{hard}", *command], capture_output=True, text=True, timeout=600, cwd=tmp_path
    )  # fmt: skip
    assert done.returncode == 2
    assert (
        f"300 boxes x 4 descriptors + 64 = 1264 open files are needed and {hard} are the hard limit"
        in done.stderr
    )
    assert f"lower rollout.max_live_trials to {most}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_less_memory_than_wanted_is_refused_with_the_setting_to_lower():
    config = load_config("smoke", [f"cluster.min_free_memory_mb={10**9}"])
    with pytest.raises(
        ValueError, match=r"\d+ MB of memory are available and .*=1000000000 .* lower the batch"
    ):
        check_machine(config)


def test_less_disk_than_wanted_is_refused_where_the_runs_would_lie(tmp_path):
    root = tmp_path / "not" / "made" / "yet"
    config = load_config("smoke", [f"cluster.min_free_disk_mb={10**9}", f"run_root={root}"])
    with pytest.raises(ValueError, match=rf"of disk are free at {tmp_path} and .*=1000000000 .* run_root"):
        check_machine(config)


def test_everything_that_the_machine_lacks_is_told_at_once():
    wanted = [f"cluster.min_free_{what}_mb={10**9}" for what in ("memory", "disk")]
    with pytest.raises(ValueError) as refusal:
        check_machine(load_config("smoke", [*wanted, "train.data_parallel=500"]))
    assert str(refusal.value).count("\n  - ") == 3


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("train.eps_clipp=0.1", "train.eps_clipp=0.1: unknown key; did you mean train.eps_clip?"),
        ("num_steps=many", "num_steps='many': Input should be a valid integer"),
    ],
    ids=["unknown key", "wrong type"],
)
def test_a_wrong_setting_is_refused_by_the_command_and_leaves_nothing(tmp_path, override, told):
    answer = t1("campaign", "smoke", "--set", override, cwd=tmp_path)
    assert answer.returncode == 2
    assert told in answer.stderr
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


def test_where_namespaces_are_forbidden_a_campaign_is_refused_with_the_way_out(tmp_path, settings):
    inside = [
        "bwrap",
        "--die-with-parent",
        "--dev-bind",
        "/",
        "/",
        "--unshare-user",
        "--disable-userns",
        "--",
    ]
    command = [sys.executable, "-m", "t1core.cli", "campaign", "smoke", *with_settings(settings)]
    answer = subprocess.run([*inside, *command], capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert answer.returncode == 2
    told = "this root user lacks uids" if os.geteuid() == 0 else "user namespaces are not allowed: "
    assert f"this machine cannot run the campaign:\n  - {told}" in answer.stderr
    assert "; fix: " in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "runs").exists()


def test_an_empty_pool_is_refused_and_leaves_no_run(tmp_path, settings):
    (tmp_path / "tasks").mkdir()
    config = load_config("smoke", [*settings, f"tasks.pool={tmp_path / 'tasks'}"])
    with pytest.raises(ValueError, match=f"pool {tmp_path / 'tasks'} is empty"):
        run_campaign(config, prepare(config))
    assert not (tmp_path / "runs").exists()


def test_a_pool_whose_task_has_no_tests_is_refused_by_the_tasks_name(tmp_path, settings):
    write_task(tmp_path / "tasks" / "greet", tests="x = 1\n")
    config = load_config("smoke", [*settings, f"tasks.pool={tmp_path / 'tasks'}"])
    with pytest.raises(ValueError, match=r"greet.*test"):
        run_campaign(config, prepare(config))
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


def test_a_campaign_without_a_critic_says_which_settings_of_a_critic_it_does_not_read(tmp_path):
    write_task(tmp_path / "greet", tests="def test_a(): pass\n\n\ndef test_b(): pass\n")
    write_index(tmp_path)
    alone = ["train.advantage=grpo", "train.num_critic_only_steps=0", "rollout.samples_per_task=2"]
    alone.append("rollout.over_sampling_batch_size=6")
    said = []
    check_plan(load_config("smoke", ["train.critic.lr=0.5"]), Pool.open(tmp_path), say=said.append)
    assert not any("no effect" in line for line in said)
    config = load_config("smoke", [*alone, "train.critic.lr=0.5", "train.critic.clip_grad=2"])
    check_plan(config, Pool.open(tmp_path), say=said.append)
    assert [line for line in said if "no effect" in line] == [
        "train.advantage=grpo builds no critic, so these have no effect: train.critic.lr=0.5, "
        "train.critic.weight_decay=0.0, train.critic.clip_grad=2.0, warm_start.critic_warmup_steps=0, "
        "model.critic_path=cold"
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
