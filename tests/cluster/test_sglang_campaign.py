"""A short campaign on a real SGLang server: sampled there, trained here, and nothing of the server left.

Needs SGLang's own environment: T1CORE_SGLANG_PYTHON names its Python.
"""

import os

import psutil
import pytest

from t1core.campaign.asset import Assets
from t1core.campaign.assets import prepare_pool
from t1core.campaign.campaign import run_campaign
from t1core.config import load_config
from t1core.store import Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("T1CORE_SGLANG_PYTHON"),
        reason="T1CORE_SGLANG_PYTHON is unset: no SGLang environment to test against",
    ),
]


def test_a_campaign_on_sglang_in_fp32_samples_what_megatron_computes(tmp_path, checkpoint, monkeypatch):
    monkeypatch.setenv("T1CORE_HOME", str(tmp_path / "home"))
    config = load_config(
        "smoke",
        [
            "rollout.engine=sglang",
            "rollout.engine_dtype=float32",
            "rollout.sglang.device=cpu",
            "rollout.sglang.transport=disk",
            "rollout.sglang.start_deadline_s=2400",
            "agent.max_turns=2",
            "agent.max_new_tokens=16",
            "num_steps=2",
            "cluster.min_free_memory_mb=500",
            f"run_root={tmp_path / 'runs'}",
        ],
    )
    said = []
    assets = Assets(prepare_pool(config, say=said.append), checkpoint, critic=None)
    run = Run.open(run_campaign(config, assets, run_name="run", say=said.append, is_evaluated=False))
    assert any(line.startswith("engine 0: SGLang 0.5.") for line in said)
    metrics = run.metrics("train")
    assert len(metrics) == 2 and metrics["train/loss_tokens"].min() > 0
    # Two implementations of one model in fp32; the second batch is of weights that were published in between.
    assert metrics["logprob_gap/abs_max"].max() < 1e-3 and metrics["routing/flip_frac"].max() == 0
    assert metrics["tito/drift_frac"].max() == 0
    assert (run.logs / "engine_0.log").stat().st_size > 0
    left = [
        process
        for process in psutil.process_iter(["cmdline"])
        if "t1-sglang-" in str(process.info["cmdline"])
    ]
    assert left == []
