"""Which engine a configuration asks for, and what is refused before one is started."""

import asyncio
import json
import os

import pytest

from t1core.cluster.engines import check_engine, check_tail, sglang_python, start_engine
from t1core.config import load_config
from t1core.rollout.engine import EngineRefused
from t1core.rollout.sglang.version import parse_version

SGLANG = ("rollout.engine=sglang",)
CONTINUED = (*SGLANG, "rollout.tail=continue", "rollout.max_staleness=2")


@pytest.fixture
def old_sglang(tmp_path):
    """A Python that answers as one with SGLang 0.5.17 does, and can do nothing else."""
    found = {"sglang": "0.5.17", "torch": "2.11.0", "transformers": "5.12.1", "has_amx": False}
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n[ $2 = versions ] && echo '{json.dumps(found)}'\n")
    python.chmod(0o755)
    return python


def refusal_at_start(config, tmp_path):
    with pytest.raises(EngineRefused) as refused:
        asyncio.run(start_engine(config, model=tmp_path, name="engine 0", log_file=tmp_path / "engine.log"))
    assert not (tmp_path / "engine.log").exists(), "no server was started"
    return str(refused.value)


def test_trials_that_live_on_need_a_server_that_knows_its_versions(old_sglang, tmp_path):
    config = load_config("quickstart", [*CONTINUED, f"rollout.sglang.python={old_sglang}"])
    told = refusal_at_start(config, tmp_path)
    for part in ("rollout.tail='continue'", "SGLang 0.5.17", "tail='cut' or 'wait'", "0.5.19"):
        assert part in told
    check_tail(config, parse_version("0.5.19"))
    check_tail(load_config("quickstart", SGLANG), parse_version("0.5.17"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("rollout.sglang.tensor_parallel=2", "tensor_parallel=2"),
        # One request of the preset's 1,536 tokens must leave room for one token more.
        ("rollout.sglang.max_total_tokens=1536", "max_total_tokens=1536 does not hold one request of 1536"),
    ],
)
def test_what_no_server_can_serve_is_refused_before_one_is_started(setting, words, old_sglang, tmp_path):
    config = load_config("quickstart", [*SGLANG, setting, f"rollout.sglang.python={old_sglang}"])
    with pytest.raises(ValueError, match=words):
        check_engine(config)
    assert words in refusal_at_start(config, tmp_path)
    check_engine(load_config("quickstart", [*SGLANG, "rollout.sglang.max_total_tokens=1537"]))


def test_the_interpreter_is_the_settings_then_the_variables_then_the_one_that_setup_makes(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("T1CORE_SGLANG_PYTHON", raising=False)
    assert sglang_python("") == tmp_path / ".venv-sglang/bin/python"
    monkeypatch.setenv("T1CORE_SGLANG_PYTHON", "/elsewhere/python")
    assert os.fspath(sglang_python("")) == "/elsewhere/python"
    assert sglang_python("own/python") == tmp_path / "own/python"


def test_settings_of_sglang_without_sglang_are_refused():
    with pytest.raises(ValueError, match="no effect with engine='embedded'"):
        load_config("quickstart", ["rollout.sglang.gpu=1"])
