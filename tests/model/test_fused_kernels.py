"""Fused kernels: where they are chosen, and what they compute beside plain torch."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from t1core.model import kernels, rope
from t1core.model.kernels import choose

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and torch sees none"),
]


def test_without_a_gpu_auto_is_plain_and_says_why(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    chosen = choose("auto", dtype=torch.bfloat16)
    assert not chosen.is_fused and str(chosen) == "plain (torch sees no CUDA device)"
    with pytest.raises(
        ValueError, match=r"kernels='fused' cannot be: torch sees no CUDA device; .*auto or plain"
    ):
        choose("fused", dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="kernels='fast': choose one of auto, fused, plain"):
        choose("fast", dtype=torch.bfloat16)


@pytest.fixture
def a_hopper(monkeypatch):
    """A machine with everything that fused kernels need."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: name)
    versions = {"fla-core": "0.6.0", "triton": "3.8.0", "torch": "2.11.0+cu130"}
    monkeypatch.setattr(kernels.metadata, "version", versions.__getitem__)
    return versions


def test_with_everything_there_auto_is_fused_and_names_the_versions(a_hopper):
    chosen = choose("auto", dtype=torch.bfloat16)
    assert str(chosen) == "fused (fla-core 0.6.0, triton 3.8.0, torch 2.11.0+cu130)"
    assert not choose("plain", dtype=torch.bfloat16).is_fused


@pytest.mark.parametrize(
    ("version", "is_fused"), [("3.3.1", True), ("3.4.0", False), ("3.7.0", False), ("3.7.1", True)]
)
def test_a_triton_whose_gradient_is_wrong_on_hopper_is_not_used(a_hopper, version, is_fused):
    a_hopper["triton"] = version
    assert choose("auto", dtype=torch.bfloat16).is_fused == is_fused


def test_fp32_weights_and_composed_slices_stay_plain(a_hopper):
    assert "weights are float32" in str(choose("auto", dtype=torch.float32))
    assert "state_scan" in str(choose("auto", dtype=torch.bfloat16, context_parallel="state_scan"))
    assert choose("auto", dtype=torch.bfloat16, context_parallel="state").is_fused


# Triton interprets its kernels on a CPU, in a process that was told so before it was imported.
INTERPRETED = """
import torch, torch.nn.functional as F
from t1core.model import triton_kernels as fused

def passes(compute, *given):
    leaves = [x.detach().clone().requires_grad_() for x in given]
    out = compute(*leaves)
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(1)))
    return [out.detach(), *(leaf.grad for leaf in leaves)]

def hold(one, other, *given):
    for found, expected in zip(passes(one, *given), passes(other, *given), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

def normed(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w

torch.manual_seed(0)
wide, weight = torch.randn(37, 200), torch.randn(24)
x = torch.randn(37, 3, 24)
hold(lambda x, w: fused.rms_norm(x, w, shift=1.0, eps=1e-6), lambda x, w: normed(x, 1 + w), x, weight)
# slices of one tensor, as a projection gives them
parts = lambda wide: (wide[:, 8:80].view(37, 3, 24), wide[:, 100:172].view(37, 3, 24))
hold(
    lambda wide, w: fused.rms_norm(parts(wide)[0], w, shift=0.0, eps=1e-6, gate=parts(wide)[1]),
    lambda wide, w: normed(parts(wide)[0], w) * F.silu(parts(wide)[1]),
    wide, weight,
)
hold(fused.l2norm, lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6), x)
hold(
    fused.swiglu,
    lambda both, p: F.silu(both[:, :40]) * both[:, 40:] * p.unsqueeze(-1),
    torch.randn(11, 80), torch.rand(11),
)
logits, targets = 3 * torch.randn(9, 5000), torch.randint(0, 5000, (9,))
for temperature in (1.0, 0.7):
    plain = lambda z: torch.log_softmax(z / temperature, -1)
    hold(
        lambda z: fused.score(z, targets, temperature=temperature)[0],
        lambda z: plain(z).gather(-1, targets.unsqueeze(-1)).squeeze(-1),
        logits,
    )
    entropy = -(plain(logits).exp() * plain(logits)).sum(-1)
    torch.testing.assert_close(fused.score(logits, targets, temperature=temperature)[1], entropy)
print("held")
"""


def test_our_triton_kernels_give_what_torch_gives_forward_and_backward():
    pytest.importorskip("triton")
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERPRETED],
        env=os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert answer.stdout.strip() == "held", answer.stderr[-2000:]


def test_rope_of_all_rows_at_once_has_the_bits_of_row_by_row():
    class Alone:
        def size(self):
            return 1

        def rank(self):
            return 0

    torch.manual_seed(0)
    edges = torch.tensor([0, 5, 6, 19], dtype=torch.int32)
    t, freqs = torch.randn(19, 2, 8), torch.randn(13, 1, 1, 4)
    expected = rope._row_by_row(t, edges, freqs, cp_group=Alone())
    assert torch.equal(rope._all_rows(t, edges, freqs, cp_group=Alone()), expected)


def test_our_chunk_table_counts_each_row_from_its_start():
    from t1core.model.forward import packed
    from t1core.model.fused import _chunks

    found = _chunks(packed(torch.tensor([0, 64, 65, 195])))
    assert found.tolist() == [[0, 0], [1, 0], [2, 0], [2, 1], [2, 2]]


# Distances are relative, in L2, of bf16 results from fp32 ones over the same experts. Bf16 puts the plain path at some
# distance; the fused one may lie a quarter farther, and two parts in a thousand.
class TestOnAGpu:
    pytestmark = needs_gpu

    def test_layers_are_as_near_to_fp32_as_plain_ones(self, networks):
        exact, plain, fused = (
            networks(*kind) for kind in (("fp32", "plain"), ("bf16", "plain"), ("bf16", "fused"))
        )
        for name, reference in exact.items():
            far, near = (float((x[name] - reference).norm() / reference.norm()) for x in (plain, fused))
            assert near <= 1.25 * far + 2e-3, (name, near, far)
        assert float((fused["logprobs"] - plain["logprobs"]).abs().mean()) < 0.02


@pytest.fixture
def networks(tmp_path):
    """Log-probs and weight gradients of one random network on one packed batch, by precision and kernels."""
    from t1core.model import forward, replay
    from t1core.model.build import build_model
    from t1core.model.checkpoint import initial_state, write_hf
    from t1core.model.convert import load_hf
    from t1core.model.scoring import score
    from t1core.model.shape import ModelShape

    shape = ModelShape.nano(
        vocab_size=512, hidden_size=256, head_dim=64, linear_key_head_dim=64, linear_value_head_dim=64
    )
    write_hf(initial_state(shape, seed=0), shape, tmp_path)
    tokens = torch.randint(0, 512, (900,), generator=torch.Generator().manual_seed(0)).cuda()
    edges = torch.tensor([0, 300, 301, 500, 900], dtype=torch.int32, device="cuda")
    rows = forward.packed(edges)
    routes: list[torch.Tensor] = []

    def run(precision: str, wanted: str) -> dict[str, torch.Tensor]:
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        model = build_model(
            shape, role="actor", dtype=dtype, routing_replay=True, kernels=choose(wanted, dtype=dtype)
        )
        load_hf(model, tmp_path, shape)
        replay.arm(model, routes[0]) if routes else replay.record(model)
        targets = tokens.roll(-1)
        out = forward.outputs(model, tokens, rows.offsets, rows)
        if not routes:
            routes.append(replay.recorded(model))
        logprobs, _ = score(out, targets, model=model)
        logprobs.mean().backward()
        gradients = {name: p.grad.float() for name, p in model.named_parameters() if p.grad is not None}
        return {"logprobs": logprobs.detach()} | gradients

    return run


def test_swiglu_of_the_plain_experts_is_what_the_fused_one_replaces():
    from t1core.model.experts import StackedExperts

    both, probs = torch.randn(5, 6), torch.rand(5)
    expected = F.silu(both[:, :3]) * both[:, 3:] * probs[:, None]
    torch.testing.assert_close(StackedExperts._activate(None, both, probs), expected)
