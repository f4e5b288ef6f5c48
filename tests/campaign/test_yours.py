"""The examples of docs/YOURS.md, as they stand there."""

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from t1core.campaign.evaluation import evaluate_policy
from t1core.campaign.preflight import check_plan
from t1core.cluster.engines import check_engine, start_engine
from t1core.config import load_config
from t1core.model.shape import ModelShape
from t1core.rollout.engine import EngineRefused
from t1core.tasks.pool import Pool
from t1core.verifier.examine import examine
from t1core.verifier.reward import counted_reward, own_rule

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "YOURS.md").read_text()


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """Every file of the page, below a folder that is on the path."""
    for name, content in re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", PAGE, re.S | re.M):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    own_rule.cache_clear()
    yield tmp_path
    for name in ("rules", "engines"):
        sys.modules.pop(name, None)


def test_the_task_pays_nothing_for_nothing_and_all_for_its_solution(examples):
    async def lines():
        return [line async for line in examine(examples / "tasks" / "greet", with_attacks=False)]

    told = asyncio.run(lines())
    assert "task                 greet, 2 tests" in told
    assert any(line.startswith("untouched workspace  0 of 2") for line in told), told
    assert any(line.startswith("solution             2 of 2") for line in told), told
    assert Pool.open(examples / "tasks").families == ("greet",)


def test_the_rule_pays_what_it_says_and_is_tried_before_anything_starts(examples):
    assert counted_reward("rules:with_bonus", passed=1, total=2, scale=20).reward == pytest.approx(0.05)
    assert counted_reward("rules:with_bonus", passed=2, total=2, scale=20).reward == pytest.approx(0.15)
    pool = Pool.open(examples / "tasks")
    check_plan(load_config("smoke", ["reward.kind=rules:with_bonus"]), pool, say=lambda line: None)
    with pytest.raises(ValueError, match=r"'rules:missing'.*PYTHONPATH"):
        check_plan(load_config("smoke", ["reward.kind=rules:missing"]), pool, say=lambda line: None)
    (examples / "odd.py").write_text("def rule(**counts):\n    return float('nan')\n")
    with pytest.raises(ValueError, match="finite"):
        counted_reward("odd:rule", passed=1, total=2)
    with pytest.raises(ValueError, match=r"reward\.kind"):
        load_config("smoke", ["reward.kind=best"])


def test_the_engine_samples_a_whole_evaluation(examples, actor, pool, settings):
    config = load_config(
        "smoke",
        [
            *settings,
            "rollout.engine=engines:counting",
            "evaluation.max_turns=1",
            "evaluation.tasks_per_split=1",
        ],
    )
    run = evaluate_policy(config, actor, pool=pool, split="heldout", say=lambda line: None)
    (trial,) = run.trials("eval").itertuples()
    (call,) = run.calls(trial.trial_id).itertuples()
    assert trial.reward == trial.reward and call.finish_reason in ("stop", "length")
    told = (run.path / "logs" / "attempt_1" / "engine_0.log").read_text().splitlines()
    assert told == [f"{trial.trial_id}/0 {call.num_prompt_tokens} {len(call.completion_token_ids)}"]


def test_an_engine_that_is_not_there_or_is_none_is_refused(examples, tmp_path):
    with pytest.raises(ValueError, match=r"rollout\.engine='engines:missing': .*PYTHONPATH"):
        check_engine(load_config("smoke", ["rollout.engine=engines:missing"]))
    with pytest.raises(ValueError, match=r"rollout\.engine"):
        load_config("smoke", ["rollout.engine=vllm"])
    (examples / "odd_engine.py").write_text("def make(model, **settings):\n    return object()\n")
    config = load_config("smoke", ["rollout.engine=odd_engine:make"])
    with pytest.raises(EngineRefused, match=r"made a object, which lacks methods"):
        asyncio.run(start_engine(config, model=tmp_path, name="e", log_file=tmp_path / "log"))


def test_every_line_of_settings_is_taken(examples, tmp_path):
    blocks = re.findall(r"^```sh settings\n(.*?)^```$", PAGE, re.S | re.M)
    assert len(blocks) == 4
    for block in blocks:
        words = shlex.split(block)
        assert words[::2] == ["--set"] * (len(words) // 2)
        load_config("quickstart", words[1::2])
    load_config("quickstart", ['sinks=["tensorboard"]'])


def test_another_architecture_is_refused_by_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ValueError, match="'llama', expected 'qwen3_5_moe_text'"):
        ModelShape.from_hf(tmp_path)
