"""What is prepared is keyed by all that determines it, appears only whole, and is sound."""

import fcntl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import t1core
from t1core.campaign import assets
from t1core.campaign.asset_key import CAMPAIGN, POLICY, asset_key, source_files, weights_key
from t1core.campaign.assets import actor_recipe, check_generated, critic_recipe, prepare, prepare_actor
from t1core.campaign.warm_start import _kept_on_failure
from t1core.config import CampaignConfig, load_config
from t1core.records import Boundary, Failure
from t1core.store import Run, RunState
from t1core.tasks.pool import Pool
from t1core.tasks.practice.pool import generate_pool

ROOT = Path(t1core.__file__).parent


def test_the_policy_is_made_from_what_its_key_holds_and_from_nothing_else():
    plain = actor_recipe(load_config("smoke"))
    for override in (
        "warm_start.seed=1", "warm_start.supervised_steps=21", "warm_start.supervised_lr=1e-3",
        "warm_start.copying_steps=6", "model.num_layers=8", "model.vocab_size=700", "agent.prompt=full",
        "train.max_tokens_per_gpu=4096",
    ):  # fmt: skip
        assert actor_recipe(load_config("smoke", [override])) != plain, override
    for override in (
        "seed=1", "name=x", "train.actor.lr=1e-5", "rollout.rollout_batch_size=3", "agent.max_turns=3",
        "warm_start.critic_warmup_steps=5", "tasks.tasks_per_family=9",
    ):  # fmt: skip
        assert actor_recipe(load_config("smoke", [override])) == plain, override


def test_a_new_setting_elsewhere_leaves_the_policy_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("T1CORE_HOME", str(tmp_path))
    monkeypatch.setattr(assets, "_ensure", lambda target, make, *, say: target.name)
    plain, seeded = (load_config("smoke", overrides) for overrides in ([], ["warm_start.seed=1"]))
    name = prepare_actor(plain, say=print)
    assert prepare_actor(seeded, say=print) != name
    whole = CampaignConfig.model_dump
    monkeypatch.setattr(CampaignConfig, "model_dump", lambda self, **how: whole(self, **how) | {"new": 1})
    assert prepare_actor(plain, say=print) == name


def test_the_critics_key_holds_every_setting_but_a_named_few():
    plain = critic_recipe(load_config("smoke"))
    for override in (
        "name=x", "seed=1", "run_root=elsewhere", "num_steps=9", "checkpoint_every=2",
        "evaluation.every=1", "evaluation.tasks_per_split=3", "model.actor_path=/a", "model.critic_path=/b",
    ):  # fmt: skip
        assert critic_recipe(load_config("smoke", [override])) == plain, override
    for override in (
        "agent.max_turns=3", "agent.output_limit_bytes=900", "sandbox.memory_mb=256", "reward.scale=10",
        "rollout.engine_dtype=float32", "train.critic.lr=1e-4", "tasks.shuffle=false", "warm_start.seed=1",
    ):  # fmt: skip
        assert critic_recipe(load_config("smoke", [override])) != plain, override


def test_keys_change_with_settings_and_with_a_byte_of_a_source(monkeypatch, tmp_path):
    source = tmp_path / "t1core" / "rl" / "loss.py"
    source.parent.mkdir(parents=True)
    source.write_text("1")
    monkeypatch.setattr(t1core, "__file__", str(tmp_path / "t1core" / "__init__.py"))
    first = asset_key({"lr": 1.0}, sources=("rl/*.py",))
    assert asset_key({"lr": 1.0}, sources=("rl/*.py",)) == first
    assert asset_key({"lr": 2.0}, sources=("rl/*.py",)) != first
    source.write_text("2")
    assert asset_key({"lr": 1.0}, sources=("rl/*.py",)) != first


def test_the_policys_sources_are_all_that_its_training_imports():
    code = (
        "import sys, t1core.train.trainer, t1core.train.process_group, t1core.campaign.demonstrations\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('t1core.') and m.__file__))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {Path(name) for name in said.stdout.split()}
    # What settings say is in the key by value.
    exempt = {ROOT / "campaign" / "__init__.py", *(ROOT / "config").glob("*.py")}
    assert imported - exempt <= set(source_files(ROOT, POLICY))
    assert len(imported) > 30


def test_the_critics_sources_are_all_but_what_only_reads_and_shows():
    out = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py")} - {
        path.relative_to(ROOT).as_posix() for path in source_files(ROOT, CAMPAIGN)
    }
    rest = {
        name
        for name in out
        if not name.startswith(("analysis/", "view/", "pools/", "failures/", "campaign/notebook"))
    }
    commands = (
        "claim",
        "claim_command",
        "claim_results",
        "claim_runs",
        "commands",
        "comparison",
        "execute",
        "launch",
        "pool_check",
        "pool_commands",
        "pool_model_commands",
        "pool_synthesis",
        "project",
        "rehearsal",
        "replay",
        "report",
        "sinks",
        "strict_yaml",
        "tail",
    )
    assert rest == {
        "cli.py",
        "config/explain.py",
        "metrics/reference.py",
        *(f"campaign/{name}.py" for name in commands),
    }


def test_weights_are_known_by_content_and_not_by_where_they_lie(actor, tmp_path):
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for path in actor.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert weights_key(copy) == weights_key(actor)
    weights = next(copy.glob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert weights_key(copy) != weights_key(actor)


def test_a_preparation_appears_whole_or_not_at_all_and_clears_what_a_killed_one_left(tmp_path):
    target = tmp_path / "pool-abc"
    for name in (".pool-abc-x1", "..pool-abc-x1.y2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("made")

    def fail(directory):
        (directory / "half").write_text("made")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        assets._ensure(target, fail, say=print)
    assert [path.name for path in tmp_path.iterdir()] == [".pool-abc.lock"]
    assets._ensure(target, lambda directory: (directory / "whole").write_text("made"), say=print)
    assert (target / "whole").exists()
    assets._ensure(target, fail, say=print)


def test_a_second_preparation_waits_for_the_first_and_takes_what_it_made(tmp_path):
    target = tmp_path / "pool-abc"
    said = []
    with (tmp_path / ".pool-abc.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = threading.Thread(target=assets._ensure, args=(target, None), kwargs={"say": said.append})
        waiting.start()
        while not said:
            time.sleep(0.01)
        target.mkdir()
    waiting.join(10)
    assert not waiting.is_alive()
    assert said == [f"another process is making {target}: waiting for it"]


def test_a_generated_pool_with_a_task_that_is_not_what_it_claims_is_refused(tmp_path):
    made = generate_pool(tmp_path / "pool", tasks_per_family=1, heldout_per_family=0, heldout_family_tasks=0)
    check_generated(made)
    solution = made.directory / made.entries[0].path / "solution" / "solve.sh"
    solution.write_text("true\n")
    with pytest.raises(ValueError, match=rf"1 of {len(made)} .*{made.entries[0].task_id}.*after solve.sh"):
        check_generated(Pool.open(made.directory))


def test_a_policy_without_a_tokenizer_is_refused(actor, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    config = load_config("smoke", [f"model.actor_path={tmp_path}"])
    with pytest.raises(ValueError, match=r"has no tokenizer\.json: name a Hugging Face directory"):
        prepare_actor(config, say=print)


def warm_up(scratch, error):
    with _kept_on_failure(scratch) as root:
        run = Run.create(root, campaign="critic-warmup", run_name="r", config={}, provenance={})
        if error:
            failure = Failure(Boundary.ENGINE, "PartDied", "engine 0 died")
            run.close(RunState.FAILED, error=str(error), failure=failure)
            raise error
        run.close()


def test_a_failed_critic_warm_up_keeps_its_run_and_names_it(tmp_path):
    with pytest.raises(
        RuntimeError, match=r"warm-up failed: engine 0 died. Its run is kept: (\S+)"
    ) as raised:
        warm_up(tmp_path, RuntimeError("engine 0 died"))
    run = Run.open(str(raised.value).split("kept: ")[1])
    assert run.failures()["message"].tolist() == ["engine 0 died"]
    for error in (None, KeyboardInterrupt()):
        before = list(tmp_path.iterdir())
        try:
            warm_up(tmp_path, error)
        except KeyboardInterrupt:
            assert error
        assert list(tmp_path.iterdir()) == before


def test_the_smoke_preset_is_prepared_from_nothing_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("T1CORE_HOME", str(tmp_path / "home"))
    small = ["warm_start.supervised_steps=2", "tasks.tasks_per_family=4", "warm_start.supervised_tokens=512"]
    config = load_config("smoke", small)
    made = prepare(config, say=print)
    assert Pool.open(made.pool).splits == ("heldout", "heldout_family", "train")
    assert {"config.json", "tokenizer.json"} < {path.name for path in made.actor.iterdir()}
    assert made.critic is None
    said = []
    assert prepare(config, say=said.append) == made
    assert said == []
    assert sorted(path.name for path in (tmp_path / "home").iterdir() if path.is_dir()) == sorted(
        [made.actor.name, made.pool.name]
    )
