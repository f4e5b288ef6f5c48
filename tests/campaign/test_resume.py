"""A campaign whose driver is killed at random places and resumed each time equals one that ran through, to the bit."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from t1core.store import Run, RunState

DETERMINISTIC = (
    "rollout.deterministic=true", "rollout.tail=wait", "checkpoint_every=1", "num_steps=3", "agent.max_turns=2",
    "agent.max_new_tokens=32", "agent.max_wait_s=60.0", "rollout.rollout_batch_size=2",
    "rollout.over_sampling_batch_size=3", "rollout.max_live_trials=3", "evaluation.tasks_per_split=1",
    "cluster.control_deadline_s=100.0",
    # A policy that solves nothing loses by its turns, so that the actor has something to learn from.
    "reward.shaping=multiplicative", "reward.healthy_turns=1", "train.num_critic_only_steps=0",
)  # fmt: skip
# What the clock and the machine decide.
TIMED = (
    *("time/", "cpu/", "memory/", "rollout/generated_tokens_per_s", "rollout/length/", "rollout/survival/"),
    *("rollout/group_idle", "agent/turn_growth"),
)


@pytest.fixture
def environment():
    """Boxes of their own, which run as another uid."""
    directory = Path(tempfile.mkdtemp(prefix="t1-boxes-"))
    directory.chmod(0o755)
    yield os.environ | {"T1CORE_BOX_DIR": str(directory), "OMP_NUM_THREADS": "1"}
    shutil.rmtree(directory, ignore_errors=True)


def start(words, log, environment):
    with log.open("a") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "t1core.cli", *words],
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env=environment,
        )  # fmt: skip


def finish(driver, log, environment, run):
    """Wait for the end. A busy machine may not start Ray in the time that Ray gives it: then the run is resumed."""
    for _ in range(4):
        if driver.wait(900) == 0:
            return
        assert "Ray did not start" in log.read_text()[-600:], log.read_text()[-3000:]
        driver = start(["resume", str(run)], log, environment)
    raise AssertionError(f"Ray did not start:\n{log.read_text()[-3000:]}")


def until(condition, driver, log, *, within_s=600.0):
    deadline = time.monotonic() + within_s
    while not condition() and driver.poll() is None:
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)


def kill(driver):
    """Kill -9, and see that all it had started goes."""
    family = psutil.Process(driver.pid).children(recursive=True)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert [" ".join(process.cmdline())[:100] for process in alive] == []


def parts(run):
    """How much the run has written: where in a step it is."""
    return sum(1 for path in run.rglob("*") if path.is_file()) if run.exists() else 0


@pytest.mark.slow
def test_killed_at_random_places_and_resumed_it_equals_the_run_that_was_not(tmp_path, settings, environment):
    words = [word for override in (*settings, *DETERMINISTIC) for word in ("--set", override)]
    log, runs = tmp_path / "log", tmp_path / "runs" / "smoke"
    driver = start(["campaign", "smoke", "--run-name", "whole", *words], log, environment)
    finish(driver, log, environment, runs / "whole")
    chance = random.Random(int(os.environ.get("T1CORE_TEST_SEED", "0")))
    driver = start(["campaign", "smoke", "--run-name", "killed", *words], log, environment)
    num_kills = 0
    for _ in range(int(os.environ.get("T1CORE_TEST_KILLS", "3"))):
        written = parts(runs / "killed") + chance.randrange(4, 16)
        until(lambda at=written: parts(runs / "killed") >= at, driver, log)
        if driver.poll() is not None:
            break
        time.sleep(chance.random())
        kill(driver)
        num_kills += 1
        assert Run.open(runs / "killed").status().died
        driver = start(["resume", str(runs / "killed")], log, environment)
    finish(driver, log, environment, runs / "killed")
    assert num_kills, "it was over before it could be killed"
    whole, killed = Run.open(runs / "whole"), Run.open(runs / "killed")
    status = killed.status()
    assert status.state is RunState.FINISHED and status.attempt > num_kills
    assert len(list((killed.path / "logs").glob("attempt_*"))) == status.attempt
    assert_equal(killed, whole)


def assert_equal(killed, whole):
    assert killed.token_steps() == whole.token_steps() == [0, 1, 2]
    for step in whole.token_steps():
        (mine, my_numbers), (theirs, their_numbers) = killed.batch(step), whole.batch(step)
        assert mine.rollout_ids == theirs.rollout_ids
        for name in (
            "tokens",
            "loss_mask",
            "rollout_log_probs",
            "weight_versions",
            "routed_experts",
            "rewards",
        ):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name)), (step, name)
        assert all(np.array_equal(my_numbers[name], their_numbers[name]) for name in their_numbers), step
    columns = ["trial_id", "task_id", "kind", "step", "outcome", "stop_reason", "reward", "sampled_tokens"]
    assert killed.trials()[columns].equals(whole.trials()[columns])
    assert killed.trials()["trial_id"].is_unique
    for kind in ("train", "eval"):
        mine, theirs = killed.metrics(kind), whole.metrics(kind)
        names = [name for name in theirs if not name.startswith(TIMED)]
        assert mine[names].equals(theirs[names])
    for role in ("actor", "critic"):
        file = Path("checkpoints") / "final" / role / "model.safetensors"
        assert (killed.path / file).read_bytes() == (whole.path / file).read_bytes(), role
    started = (killed.path / "checkpoints" / "step_0001" / "hf" / "actor" / "model.safetensors").read_bytes()
    assert started != (killed.path / "checkpoints/final/actor/model.safetensors").read_bytes(), (
        "nothing moved"
    )
    scores = [[(s.split, s.resolved, s.dense, s.weights) for s in run.scores()] for run in (killed, whole)]
    assert scores[0] == scores[1]


def test_what_cannot_be_resumed_says_why(tmp_path, settings, actor, pool):
    from t1core.campaign.resume import resume_campaign
    from t1core.config import load_config

    config = load_config("smoke", settings).model_dump(mode="json")

    def make(name):
        return Run.create(tmp_path, campaign="c", run_name=name, config=config, provenance={"git": {}})

    with make("finished") as run:
        pass
    with pytest.raises(ValueError, match="has finished"):
        resume_campaign(run.path)
    run = make("old")
    run.close(RunState.FAILED)
    with pytest.raises(ValueError, match=r"no plan\.json"):
        resume_campaign(run.path)
    run = make("weights")
    (run.folder("checkpoints") / "step_0004").mkdir()
    run.record_plan({"pool": str(pool), "actor": str(actor), "critic": None, "is_evaluated": True})
    run.close(RunState.FAILED)
    with pytest.raises(ValueError, match=r"step_0004 is the newest.*weights only.*--from-start"):
        resume_campaign(run.path)
    assert run.status().attempt == 1, "nothing was set aside"
    run = make("moved")
    run.record_plan({"pool": "/gone", "actor": "/gone", "critic": None, "is_evaluated": True})
    run.close(RunState.FAILED)
    with pytest.raises(ValueError, match="/gone, which is gone"):
        resume_campaign(run.path)
