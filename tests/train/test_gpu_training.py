"""The trainer on a GPU: its numbers against a CPU's, its precisions, and what leaves the device when networks swap."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ppo_scenario import make_batch, pipelined_steps, settings

from t1core.model import cpu_shim
from t1core.train import offload, process_group
from t1core.train.trainer import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and torch sees none"),
]
ON_A_CPU = """
import json, sys
from ppo_scenario import make_batch, pipelined_steps, trainer
with trainer(sys.argv[1]) as made:
    scores = made.score(make_batch())
    results = pipelined_steps(made)
json.dump({"scores": scores.tolist(), "metrics": [r.metrics for r in results]}, open(sys.argv[2], "w"))
"""


@pytest.fixture
def on_gpu(actor_path, monkeypatch):
    """Makes trainers that are a world of their own, over NCCL."""
    made = []
    for name, value in (
        *(("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29521")),
        *(("RANK", "0"), ("WORLD_SIZE", "1")),
    ):
        monkeypatch.setenv(name, value)

    def make(**overrides) -> Trainer:
        process_group.join()
        trainer = Trainer(settings(actor_path, **overrides))
        trainer.setup()
        made.append(trainer)
        return trainer

    yield make
    for trainer in made:
        trainer.close()


@pytest.fixture(scope="module")
def from_a_cpu(actor_path, tmp_path_factory):
    """The same scenario in a process that sees no GPU."""
    found = tmp_path_factory.mktemp("cpu") / "found.json"
    here = Path(__file__).parent
    subprocess.run(
        [sys.executable, "-c", ON_A_CPU, actor_path, str(found)],
        check=True,
        env=os.environ
        | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        | {"PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])},
    )
    return json.loads(found.read_text())


def test_megatron_runs_on_nccl_without_the_stand_ins_for_a_cpu(on_gpu):
    made = on_gpu()
    assert dist.get_backend() == "nccl" and made.device.type == "cuda"
    assert not cpu_shim._installed
    assert all(weight.is_cuda for _, weight in made.actor.parameters())


def test_scores_and_steps_in_fp32_are_a_cpus(on_gpu, from_a_cpu):
    made = on_gpu()
    np.testing.assert_allclose(made.score(make_batch()), from_a_cpu["scores"], atol=2e-4)
    for result, expected in zip(pipelined_steps(made), from_a_cpu["metrics"], strict=True):
        for name in (
            "actor/loss",
            "critic/loss",
            "actor/grad_norm",
            "critic/grad_norm",
            "logprob_gap/abs_mean",
        ):
            assert result.metrics[name] == pytest.approx(expected[name], rel=5e-3, abs=1e-5), name


def test_bf16_weights_keep_gradients_optimiser_and_router_in_fp32(on_gpu):
    made = on_gpu(precision="bf16")
    routed = []
    for name, module in made.actor.model.named_modules():
        if name.endswith("mlp.router"):
            gating = module.gating
            module.gating = lambda x, gating=gating: routed.append(gating(x)) or routed[-1]
    results = pipelined_steps(made)
    assert {logits.dtype for logits in routed} == {torch.float32}
    for learner in made.learners.values():
        assert {weight.dtype for _, weight in learner.parameters()} <= {torch.bfloat16, torch.float32}
        assert {buffer.grad_data.dtype for buffer in offload._buffers(learner)} == {torch.float32}
        optimised = list(offload._optimised(learner))
        assert {param.dtype for param, _ in optimised} == {torch.float32}
        assert {state["exp_avg"].dtype for _, state in optimised} == {torch.float32}
    assert all(np.isfinite(result.metrics["actor/grad_norm"]) for result in results)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_swap_frees_the_device_and_brings_every_bit_back(on_gpu, precision):
    made = on_gpu(precision=precision, offload=True)
    pipelined_steps(made)
    before, held = made.checksum(), torch.cuda.memory_allocated()
    state = offload.state_checksum(made.actor)
    made.offload("actor")
    freed = held - torch.cuda.memory_allocated()
    assert freed >= offload.state_bytes(made.actor) > 0
    made.reload("actor")
    assert torch.cuda.memory_allocated() == pytest.approx(held, rel=0.01)
    assert offload.state_checksum(made.actor) == state and made.checksum() == before


def test_a_bit_that_changes_on_the_host_is_caught(on_gpu):
    made = on_gpu(offload=True)
    pipelined_steps(made)
    made.offload("actor")
    _, host = made._away["actor"].stored[0]
    host[len(host) // 2] ^= 1
    with pytest.raises(AssertionError, match="changed while they were off the device"):
        made.reload("actor")


def test_a_warm_trainer_has_compiled_what_its_first_step_needs(on_gpu):
    made = on_gpu(precision="bf16", measure_free_routing=True)
    before = made.checksum(), made.checksum("critic")
    seconds = made.warm_up(num_tokens=256)
    assert set(seconds) == {"actor", "critic"}
    assert (made.checksum(), made.checksum("critic")) == before
    pipelined_steps(made)
