"""Four ranks that run the delta rule and whole networks under context parallelism, beside one rank.

Started by test_gdn_context_parallel as: python gdn_ranks.py JOB.json. One process imports, four forked ones compute,
and rank 0 writes what the slowest and farthest of them saw.
"""

import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from packed_text import PackedText, random_text

from t1core.model import convert, cpu_shim, delta_rule, forward, layout
from t1core.model.build import build_model
from t1core.model.causal_conv import causal_conv1d
from t1core.model.context_slices import cut, to_slice, to_zigzag, with_halo
from t1core.model.shape import ModelShape
from t1core.model.state_handover import Scan, Sequential

WORLD = 4
CHUNK = 16
HEADS, REPEAT, KEY, VALUE, TAPS = 1, 2, 8, 6, 4
CASES = {"packed": [136, 8, 264, 40, 64], "one row": [512], "fewer chunks than ranks": [24]}
KINDS = {"state": Sequential, "state_scan": Scan}
TEXT = [72, 8, 128, 40]
SHAPE = ModelShape.nano(
    vocab_size=64,
    num_layers=2,
    full_attention_interval=2,
    hidden_size=32,
    head_dim=16,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
)


def operator(cp: int, *, lengths: list[int], kind: str, groups: dict[int, Any]) -> dict[str, float]:
    """Largest differences from one rank, over all ranks: of outputs (absolute) and gradients (relative to the largest
    one of their kind)."""
    generator = torch.Generator().manual_seed(sum(lengths))
    total, channels = sum(lengths), HEADS * (2 * KEY + REPEAT * VALUE)
    values = [
        torch.randn(total, channels, generator=generator),
        -torch.rand(total, HEADS * REPEAT, generator=generator) / 4,
        torch.rand(total, HEADS * REPEAT, generator=generator),
        torch.randn(channels, TAPS, generator=generator) / 2,
    ]
    upstream = torch.randn(total, HEADS * REPEAT, VALUE, generator=generator)
    rows = forward.packed(torch.tensor([0, *lengths]).cumsum(0))
    rule = dict(num_key_heads=HEADS, key_dim=KEY, chunk_size=CHUNK)
    alone = [value.clone().requires_grad_() for value in values]
    out = delta_rule.chunk_gated_delta_rule(
        causal_conv1d(alone[0], alone[3], rows), alone[1], alone[2], rows=rows, **rule
    )
    out.backward(upstream)

    group = groups[cp]
    own = cut(rows, cp=cp, rank=group.rank(), chunk=CHUNK)
    held = rows.zigzag(cp)[group.rank()]
    shares = [value[held].requires_grad_() for value in values[:3]] + [values[3].clone().requires_grad_()]
    qkv, g, beta = (to_slice(share, own, group) for share in shares[:3])
    wider, borrowed = with_halo(qkv, own, size=TAPS - 1, group=group)
    mixed = causal_conv1d(wider, shares[3], borrowed)[len(wider) - len(qkv) :]
    handover = KINDS[kind](own, group, shape=(HEADS, REPEAT, KEY, VALUE))
    found = delta_rule.chunk_gated_delta_rule(mixed, g, beta, rows=own.rows, handover=handover, **rule)
    found = to_zigzag(found, own, group)
    found.backward(upstream[held])
    dist.all_reduce(shares[3].grad, group=group)

    expected = [each.grad[held] for each in alone[:3]] + [alone[3].grad]
    scales = [each.grad.abs().max() for each in alone]
    apart = {"forward": (found - out[held]).abs().max()}
    for name, share, wanted, scale in zip(
        ("qkv", "g", "beta", "conv"), shares, expected, scales, strict=True
    ):
        apart[name] = (share.grad - wanted).abs().max() / scale
    return {name: _largest(value) for name, value in apart.items()}


def network(job: dict[str, Any], *, text: PackedText, weights: torch.Tensor, **how: Any) -> dict[str, Any]:
    """Log-probs [T] and every parameter's gradient of their weighted sum, of one layout; summed over its ranks."""
    made = layout.Layout(**how)
    layout.initialize(made, seed=7, timeout_s=120)
    from megatron.core import parallel_state

    model = build_model(SHAPE, role="actor", layout=made)
    convert.load_hf(model, job["checkpoint"], SHAPE)
    rows = forward.packed(text.cu_seqlens)
    held = rows.zigzag(made.cp)[parallel_state.get_context_parallel_rank()]
    logprobs, _ = forward.token_logprobs(
        model, text.tokens[held], text.positions[held], text.targets[held], rows
    )
    (logprobs * weights[held]).sum().backward()
    group = parallel_state.get_context_parallel_group()
    whole = torch.zeros(len(weights))
    whole[held] = logprobs.detach()
    dist.all_reduce(whole, group=group)
    gradients = {}
    for name, parameter in model.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(gradient, group=group)
        gradients[name] = gradient
    layout.destroy()
    return {"logprobs": whole, "gradients": gradients}


def distance(found: dict[str, Any], reference: dict[str, Any]) -> dict[str, float]:
    """Largest differences of log-probs, and of gradients relative to the largest of the parameter."""
    gradients = [
        (gradient - reference["gradients"][name]).abs().max()
        / reference["gradients"][name].abs().max().clamp(min=1e-6)
        for name, gradient in found["gradients"].items()
    ]
    return {
        "logprobs": _largest((found["logprobs"] - reference["logprobs"]).abs().max()),
        "gradients": _largest(torch.stack(gradients).max()),
    }


def _largest(value: torch.Tensor) -> float:
    """Over all ranks; a value that is no number counts as infinite."""
    value = torch.as_tensor(value).detach().double().nan_to_num(nan=float("inf")).clone()
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value)


@contextmanager
def planted(fault: str) -> Iterator[None]:
    """One fault in the hand-over."""
    receive, back = Sequential._receive, Sequential.arrive_back
    if fault == "state in bf16":
        Sequential._receive = lambda self, source: _rounded(receive(self, source))
    else:
        assert fault == "no gradient of the state"

        def forget(self: Sequential, own: Callable[[], torch.Tensor]) -> None:
            back(self, own)

        Sequential.arrive_back = forget
    yield
    Sequential._receive, Sequential.arrive_back = receive, back


def _rounded(state: torch.Tensor | None) -> torch.Tensor | None:
    return None if state is None else state.bfloat16().float()


def run(rank: int, job: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{job['store']}", rank=rank, world_size=WORLD)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    groups = {2: pairs[rank // 2], 4: dist.group.WORLD}
    found: dict[str, Any] = {"operator": {}, "network": {}, "fault": {}}
    for cp in groups:
        for case, lengths in CASES.items():
            for kind in KINDS:
                found["operator"][f"{cp} ranks, {case}, {kind}"] = operator(
                    cp, lengths=lengths, kind=kind, groups=groups
                )
    for fault in ("state in bf16", "no gradient of the state"):
        with planted(fault):
            found["fault"][fault] = operator(4, lengths=CASES["packed"], kind="state", groups=groups)

    text = random_text(TEXT, vocab_size=SHAPE.vocab_size)
    everywhere = torch.ones(sum(TEXT))
    alone = network(job, text=text, weights=everywhere)
    delta_rule.CHUNK = CHUNK
    found["floor"] = distance(network(job, text=text, weights=everywhere), alone)
    delta_rule.CHUNK = 32
    for cp, way in [(2, "state_scan"), (4, "state")]:
        spread = network(job, text=text, weights=everywhere, cp=cp, gdn_cp=way)
        found["network"][f"{cp} ranks, {way}"] = distance(spread, alone)

    # Only the first of four ranks holds tokens with loss; and a row that carries none at all.
    first = torch.zeros(sum(TEXT))
    first[forward.packed(text.cu_seqlens).zigzag(4)[0]] = 1
    found["masked"] = distance(
        network(job, text=text, weights=first, cp=4), network(job, text=text, weights=first)
    )
    longer = PackedText((*text.rows, torch.zeros(24, dtype=torch.long)))
    weights = torch.cat([everywhere, torch.zeros(24)])
    padded = network(job, text=longer, weights=weights, cp=4)
    padded["logprobs"] = padded["logprobs"][: sum(TEXT)]
    found["filler"] = distance(padded, alone)
    if rank == 0:
        Path(job["out"]).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def main(job: dict[str, Any]) -> None:
    cpu_shim.install()
    forking = multiprocessing.get_context("fork")
    ranks = [forking.Process(target=run, args=(rank, job)) for rank in range(WORLD)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    sys.exit(max(abs(rank.exitcode) for rank in ranks))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
