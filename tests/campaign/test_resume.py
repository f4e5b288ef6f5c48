"""A campaign whose driver is killed at random places and resumed each time equals one that ran through, to the bit."""

import os
import random
import re
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
    "rollout.deterministic=true", "rollout.tail=wait", "checkpoint_every=1", "agent.max_turns=2",
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
    """Kill -9, and see that all it had started goes; two agents of Ray's take a minute or more if it was starting."""
    family = psutil.Process(driver.pid).children(recursive=True)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    _, alive = psutil.wait_procs(family, timeout=180)
    assert [" ".join(process.cmdline())[:100] for process in alive] == []


def parts(run):
    """How much the run has written: where in a step it is."""
    return sum(1 for path in run.rglob("*") if path.is_file()) if run.exists() else 0


def checkpoints(run):
    """How many of its checkpoints are whole."""
    return len(list(run.glob("checkpoints/step_*/checkpoint.json")))


def places(chance, count):
    """Where to kill, each from the start of its attempt on: (checkpoints, files, seconds) that come before. Every other
    one comes after a further checkpoint, in any order."""
    later = [1] * ((count + 1) // 2) + [0] * (count // 2)
    chance.shuffle(later)
    return [
        (more, chance.randrange(16) if more else chance.randrange(4, 16), chance.random()) for more in later
    ]


@pytest.mark.slow
def test_killed_at_random_places_and_resumed_it_equals_the_run_that_was_not(tmp_path, settings, environment):
    chance = random.Random(int(os.environ.get("T1CORE_TEST_SEED", "0")))
    kills = places(chance, int(os.environ.get("T1CORE_TEST_KILLS", "3")))
    num_steps = 2 + sum(more for more, _, _ in kills)
    overrides = (*settings, *DETERMINISTIC, f"num_steps={num_steps}")
    words = [word for override in overrides for word in ("--set", override)]
    log, runs = tmp_path / "log", tmp_path / "runs" / "smoke"
    driver = start(["campaign", "smoke", "--run-name", "whole", *words], log, environment)
    finish(driver, log, environment, runs / "whole")
    run = runs / "killed"
    driver = start(["campaign", "smoke", "--run-name", "killed", *words], log, environment)
    num_kills = 0
    for more, files, seconds in kills:
        whole = checkpoints(run) + more
        until(lambda enough=whole: checkpoints(run) >= enough, driver, log)
        written = parts(run) + files
        until(lambda enough=written: parts(run) >= enough, driver, log)
        if driver.poll() is not None:
            break
        time.sleep(seconds)
        kill(driver)
        num_kills += 1
        status = Run.open(run).status()
        print(
            f"killed in attempt {status.attempt}, {status.phase or 'starting'}, {checkpoints(run)} checkpoints"
        )
        assert status.died or "Ray did not start" in status.error
        driver = start(["resume", str(run)], log, environment)
    finish(driver, log, environment, run)
    assert num_kills, "it was over before it could be killed"
    assert re.search(r"attempt \d+: [1-9]\d* steps are trained", log.read_text()), (
        "no kill after a checkpoint"
    )
    whole, killed = Run.open(runs / "whole"), Run.open(run)
    status = killed.status()
    assert status.state is RunState.FINISHED and status.attempt > num_kills
    assert len(list((killed.path / "logs").glob("attempt_*"))) == status.attempt
    assert_equal(killed, whole, num_steps=num_steps)


def assert_equal(killed, whole, *, num_steps):
    assert killed.token_steps() == whole.token_steps() == list(range(num_steps))
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

    def make(name, plan=None):
        return Run.create(
            tmp_path, campaign="c", run_name=name, config=config, provenance={"git": {}}, plan=plan
        )

    with make("finished") as run:
        pass
    with pytest.raises(ValueError, match="has finished"):
        resume_campaign(run.path)
    run = make("old")
    run.close(RunState.FAILED)
    with pytest.raises(ValueError, match=r"no plan\.json"):
        resume_campaign(run.path)
    run = make("weights", {"pool": str(pool), "actor": str(actor), "critic": None, "is_evaluated": True})
    (run.folder("checkpoints") / "step_0004").mkdir()
    run.close(RunState.FAILED)
    with pytest.raises(ValueError, match=r"step_0004 is the newest.*weights only.*--from-start"):
        resume_campaign(run.path)
    assert run.status().attempt == 1, "nothing was set aside"
    run = make("moved", {"pool": "/gone", "actor": "/gone", "critic": None, "is_evaluated": True})
    run.close(RunState.FAILED)
    with pytest.raises(ValueError, match="/gone, which is gone"):
        resume_campaign(run.path)
