"""GatedDeltaNet cut over context-parallel slices and ranks, beside one rank: exactness, memory and time.

    python benchmarks/gdn_context_parallel.py    # one GPU: the operator in 2 and 4 slices; more GPUs: the layer, too
    python benchmarks/gdn_context_parallel.py --tokens 256 --chunk 16 --key-heads 2 --value-heads 4 --head-dim 8 \
        --hidden 32 --output ''                  # a CPU

Operator, in one process: the sequence whole, and cut into slices that hand their state on (`state`) or compose their
maps (`state_scan`), by t1core's kernel, and by flash-linear-attention's where that is installed. Its tuned kernels are
held to their first configuration, so that whole and slices run the same algorithm. Layer, over ranks: each way of
context parallelism against one rank in the same run. A time is the median of `--repeats` after one warm-up.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from t1core.model import cpu_shim, delta_rule, forward
from t1core.model.kernels import hold_configurations

OUTPUT = Path(__file__).resolve().parents[1] / "figures" / "results" / "gdn_context_parallel.json"
WAYS = ("state", "state_scan", "heads", "gather")


@dataclass(frozen=True)
class Operator:
    """Inputs of the delta rule over one row, and the gradient that comes back."""

    qkv: torch.Tensor
    g: torch.Tensor
    beta: torch.Tensor
    upstream: torch.Tensor
    key_heads: int
    value_heads: int
    head_dim: int
    chunk: int

    @property
    def state_shape(self) -> tuple[int, ...]:
        return self.key_heads, self.value_heads // self.key_heads, self.head_dim, self.head_dim

    def leaves(self, where: slice = slice(None)) -> list[torch.Tensor]:
        return [x[where].detach().clone().requires_grad_() for x in (self.qkv, self.g, self.beta)]

    def run(self, leaves: Sequence[torch.Tensor], handover: Any = None) -> torch.Tensor:
        return delta_rule.chunk_gated_delta_rule(
            *leaves,
            rows=forward.packed(torch.tensor([0, len(leaves[0])], device=self.qkv.device)),
            num_key_heads=self.key_heads,
            key_dim=self.head_dim,
            chunk_size=self.chunk,
            handover=handover,
        )


def make_operator(
    num_tokens: int, *, key_heads: int, value_heads: int, head_dim: int, chunk: int, device: str
) -> Operator:
    generator = torch.Generator(device).manual_seed(num_tokens)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def drawn(*size: int) -> torch.Tensor:
        return torch.randn(num_tokens, *size, generator=generator, device=device)

    return Operator(
        qkv=drawn((2 * key_heads + value_heads) * head_dim).to(dtype),
        g=-torch.nn.functional.softplus(drawn(value_heads)) / 16,
        beta=drawn(value_heads).sigmoid().to(dtype),
        upstream=drawn(value_heads, head_dim).to(dtype),
        key_heads=key_heads,
        value_heads=value_heads,
        head_dim=head_dim,
        chunk=chunk,
    )


@dataclass
class InTurn:
    """A hand-over between slices of one process, run in order and back again."""

    left: "InTurn | None"
    is_last: bool
    state: torch.Tensor | None = None
    gradient: torch.Tensor | None = None

    def arrive(self, own_map: Callable[[], torch.Tensor]) -> torch.Tensor | None:
        return self.left.state if self.left else None

    def depart(self, state: Callable[[], torch.Tensor]) -> None:
        self.state = None if self.is_last else state()

    def arrive_back(self, own_gradient: Callable[[], torch.Tensor]) -> torch.Tensor | None:
        return self.gradient

    def depart_back(self, gradient: Callable[[], torch.Tensor]) -> None:
        if self.left:
            self.left.gradient = gradient()

    def settle(self) -> None: ...


@dataclass
class Composed:
    """A hand-over whose state and gradient were composed beforehand; with none, it notes the slice's own map."""

    state: torch.Tensor | None = None
    gradient: torch.Tensor | None = None
    noted: dict[str, torch.Tensor] = field(default_factory=dict)

    def arrive(self, own_map: Callable[[], torch.Tensor]) -> torch.Tensor | None:
        self.noted["map"] = own_map()
        return self.state

    def depart(self, state: Callable[[], torch.Tensor]) -> None: ...

    def arrive_back(self, own_gradient: Callable[[], torch.Tensor]) -> torch.Tensor | None:
        self.noted["gradient"] = own_gradient()
        return self.gradient

    def depart_back(self, gradient: Callable[[], torch.Tensor]) -> None: ...

    def settle(self) -> None: ...


def in_turn(case: Operator, slices: Sequence[slice]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Output and gradients of (qkv, g, beta), slice after slice."""
    links: list[InTurn] = []
    for i in range(len(slices)):
        links.append(InTurn(links[-1] if links else None, is_last=i == len(slices) - 1))
    leaves = [case.leaves(where) for where in slices]
    outs = [case.run(own, link) for own, link in zip(leaves, links, strict=True)]
    for where, out in reversed(list(zip(slices, outs, strict=True))):
        out.backward(case.upstream[where])
    return torch.cat(outs).detach(), _joined(leaves)


def composed(case: Operator, slices: Sequence[slice]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The same with states and their gradients composed from every slice's own map."""
    dim = case.head_dim
    zero = torch.zeros(case.state_shape, device=case.qkv.device)
    maps = []
    with torch.no_grad():
        for where in slices:
            probe = Composed()
            case.run(case.leaves(where), probe)
            maps.append(probe.noted["map"])
    states = [zero]
    for each in maps[:-1]:
        states.append(each[..., :dim] @ states[-1] + each[..., dim:])
    links = [Composed(state) for state in states]
    leaves = [case.leaves(where) for where in slices]
    outs = [case.run(own, link) for own, link in zip(leaves, links, strict=True)]
    for where, out, own in zip(slices, outs, leaves, strict=True):
        torch.autograd.grad(out, own, case.upstream[where], retain_graph=True)
    gradient = zero
    for i in range(len(slices) - 1, 0, -1):
        gradient = maps[i][..., :dim].transpose(-1, -2) @ gradient + links[i].noted["gradient"]
        links[i - 1].gradient = gradient
    for where, out in zip(slices, outs, strict=True):
        out.backward(case.upstream[where])
    return torch.cat(outs).detach(), _joined(leaves)


def _joined(leaves: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    return [torch.cat([own[i].grad for own in leaves]) for i in range(3)]


def operator_report(case: Operator, *, num_slices: Sequence[int], repeats: int) -> dict[str, Any]:
    """The whole sequence and its cuts: largest differences, peak bytes, seconds."""
    num_tokens = len(case.qkv)

    def whole(where: slice = slice(None)) -> tuple[torch.Tensor, list[torch.Tensor]]:
        own = case.leaves(where)
        out = case.run(own)
        out.backward(case.upstream[where])
        return out.detach(), [x.grad for x in own]

    expected, gradients = whole()
    report: dict[str, Any] = {
        "tokens": num_tokens,
        "whole": {"seconds": timed(whole, repeats=repeats), "peak_bytes": peak(whole)},
    }
    for count in num_slices:
        size = num_tokens // count
        assert size * count == num_tokens and size % case.chunk == 0, "cut on the chunk grid"
        slices = [slice(i * size, (i + 1) * size) for i in range(count)]
        first = report["whole"]["peak_bytes"]
        own = peak(lambda where=slices[0]: whole(where))
        report[f"{count} slices"] = {
            "slice_seconds": timed(lambda where=slices[0]: whole(where), repeats=repeats),
            "slice_peak_bytes": own,
            "slice_peak_over_whole": own / first if own and first else None,
            **{
                name: apart(way(case, slices), expected, gradients)
                for name, way in (("state", in_turn), ("state_scan", composed))
            },
        }
    return report


def apart(
    found: tuple[torch.Tensor, list[torch.Tensor]], expected: torch.Tensor, gradients: list[torch.Tensor]
) -> dict[str, float | bool]:
    """Whether outputs are the same bits; largest differences, of gradients relative to the largest of their kind."""
    out, own = found
    return {
        "forward_is_bit_exact": bool(torch.equal(out, expected)),
        "forward": float((out.float() - expected.float()).abs().max()),
        **{
            name: float((a.float() - b.float()).abs().max() / b.float().abs().max())
            for name, a, b in zip(("qkv", "g", "beta"), own, gradients, strict=True)
        },
    }


def fla_report(case: Operator, *, num_slices: Sequence[int], repeats: int) -> dict[str, Any]:
    """flash-linear-attention's kernel with its fp32 state handed from slice to slice, against the whole."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    pinned = hold_configurations()
    dim, keys = case.head_dim, case.key_heads * case.head_dim
    repeat = case.value_heads // case.key_heads
    q, k, v = case.qkv.split([keys, keys, case.value_heads * dim], dim=-1)
    q, k = (
        delta_rule.l2norm(x.unflatten(-1, (-1, dim))).repeat_interleave(repeat, 1).to(case.qkv.dtype)
        for x in (q, k)
    )
    given = [q, k, v.unflatten(-1, (-1, dim)), case.g, case.beta]

    def run(slices: Sequence[slice], *, backward: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
        leaves = [x[None].detach().clone().requires_grad_() for x in given]
        state, outs = None, []
        for where in slices:
            q, k, v, g, beta = (x[:, where] for x in leaves)
            out, state = chunk_gated_delta_rule(
                q, k, v, g=g, beta=beta, scale=dim**-0.5, initial_state=state, output_final_state=True
            )
            outs.append(out)
        whole = torch.cat(outs, dim=1)
        if backward:
            whole.backward(case.upstream[None])
        return whole.detach(), [x.grad for x in leaves] if backward else []

    everything = [slice(None)]
    report: dict[str, Any] = {"tokens": len(case.qkv), "pinned_kernels": pinned}
    try:
        run(everything, backward=True)
        backward = True
    except Exception as error:  # the library refuses Triton versions that compute its backward wrongly
        report["backward_refused"] = f"{type(error).__name__}: {str(error)[:300]}"
        backward = False
    expected, gradients = run(everything, backward=backward)
    report["whole"] = {
        "seconds": timed(lambda: run(everything, backward=backward), repeats=repeats),
        "peak_bytes": peak(lambda: run(everything, backward=backward)),
    }
    for count in num_slices:
        size = len(case.qkv) // count
        cuts = [slice(i * size, (i + 1) * size) for i in range(count)]
        out, own = run(cuts, backward=backward)
        report[f"{count} slices"] = {
            "forward_is_bit_exact": bool(torch.equal(out, expected)),
            "forward": float((out.float() - expected.float()).abs().max()),
            "gradients": {
                name: float((a.float() - b.float()).abs().max() / b.float().abs().max())
                for name, a, b in zip("qkvgb", own, gradients, strict=bool(own))
            },
            "seconds": timed(lambda cuts=cuts: run(cuts, backward=backward), repeats=repeats),
        }
    return report


def layer_report(rank: int, job: dict[str, Any]) -> None:
    """One rank of the layer's comparison; rank 0 writes the report."""
    on_gpu = job["device"] == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    world = job["world"]
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", init_method=f"file://{job['store']}", rank=rank, world_size=world
    )
    delta_rule.CHUNK = job["chunk"]
    alone = run_layer(job, cp=1, way="state")
    report: dict[str, Any] = {"tokens": job["tokens"], "ranks": world, "one rank": _numbers(alone)}
    for way in WAYS:
        if way == "heads" and job["key_heads"] % world:
            continue
        found = run_layer(job, cp=world, way=way)
        own = alone["out"][found["held"]]
        report[way] = _numbers(found) | {
            "forward": _worst((found["out"] - own).abs().max()),
            "scale": _worst(own.abs().max()),
            "gradient": max(
                _worst((found["gradients"][name] - gradient).abs().max() / gradient.abs().max())
                for name, gradient in alone["gradients"].items()
            ),
            "speed_over_one_rank": report["one rank"]["seconds"] / _worst(torch.tensor(found["seconds"])),
        }
    if rank == 0:
        Path(job["out"]).write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


def run_layer(job: dict[str, Any], *, cp: int, way: str) -> dict[str, Any]:
    """Forward and backward of one layer on this rank's share of one row: output, weight gradients, seconds, bytes."""
    from megatron.core import parallel_state
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer.spec_utils import build_module

    from t1core.model.layout import Layout, destroy, initialize
    from t1core.model.shape import ModelShape
    from t1core.model.spec import block_spec, transformer_config

    layout = Layout(cp=cp, gdn_cp=way)
    initialize(layout, seed=1)
    on_gpu, dtype = job["device"] == "cuda", torch.bfloat16 if job["device"] == "cuda" else torch.float32
    shape = ModelShape.nano(
        vocab_size=512,
        hidden_size=job["hidden"],
        linear_num_key_heads=job["key_heads"],
        linear_num_value_heads=job["value_heads"],
        linear_key_head_dim=job["head_dim"],
        linear_value_head_dim=job["head_dim"],
    )
    config = transformer_config(shape, layout=layout, dtype=dtype, routing_replay=False, recompute=False)
    spec = block_spec(config, shape, layout=layout).layer_specs[0].submodules.self_attention
    layer = build_module(
        spec, config=config, layer_number=1, pg_collection=ProcessGroupCollection.use_mpu_process_groups()
    )
    for parameter in layer.parameters():
        dist.broadcast(parameter.data, 0)
    generator = torch.Generator(job["device"]).manual_seed(0)
    size = job["tokens"], 1, job["hidden"]
    hidden = torch.randn(size, generator=generator, device=job["device"]).to(dtype)
    upstream = torch.randn(size, generator=generator, device=job["device"]).to(dtype)
    rows = forward.packed(torch.tensor([0, job["tokens"]], device=job["device"]))
    held = rows.zigzag(cp)[parallel_state.get_context_parallel_rank()]
    share, back = hidden[held], upstream[held]
    del hidden, upstream

    def once() -> torch.Tensor:
        layer.zero_grad(set_to_none=True)
        out, _ = layer(share.detach().requires_grad_(), None, packed_seq_params=rows)
        out.backward(back)
        return out.detach()

    out = once().float().squeeze(1)
    gradients = {name: parameter.grad.float() for name, parameter in layer.named_parameters()}
    for gradient in gradients.values():
        dist.all_reduce(gradient, group=parallel_state.get_context_parallel_group())
    if on_gpu:
        torch.cuda.empty_cache()
    found = {
        "out": out,
        "held": held,
        "gradients": gradients,
        "seconds": timed(once, repeats=job["repeats"]),
        "peak_bytes": peak(once),
    }
    destroy()
    return found


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("seconds", "peak_bytes")}


def _worst(value: torch.Tensor) -> float:
    value = value.detach().double().cuda() if torch.cuda.is_available() else value.detach().double().clone()
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value)


def timed(work: Callable[[], Any], *, repeats: int) -> float:
    """Median wall seconds, after one call that does not count."""
    taken = []
    for _ in range(repeats + 1):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


def peak(work: Callable[[], Any]) -> int | None:
    """Bytes that the allocator had at most beyond what was there before; None on a CPU, which counts none."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def layers(job: dict[str, Any]) -> dict[str, Any]:
    """`layer_report` over `job["world"]` processes."""
    starting = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        job = job | {"store": f"{scratch}/store", "out": f"{scratch}/report.json"}
        ranks = [starting.Process(target=layer_report, args=(rank, job)) for rank in range(job["world"])]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        if any(rank.exitcode for rank in ranks):
            raise RuntimeError(f"ranks ended with {[rank.exitcode for rank in ranks]}")
        return json.loads(Path(job["out"]).read_text())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[33_792, 65_536])
    parser.add_argument("--slices", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--key-heads", type=int, default=8, help="of the operator and the layer")
    parser.add_argument("--value-heads", type=int, default=32)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=3072, help="of the layer")
    parser.add_argument("--chunk", type=int, default=delta_rule.CHUNK)
    parser.add_argument("--ranks", type=int, default=None, help="of the layer; as many as there are GPUs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kernels", nargs="+", default=["own", "fla"], choices=["own", "fla"])
    parser.add_argument("--output", default=str(OUTPUT), help="'' writes nothing")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    heads = dict(key_heads=given.key_heads, value_heads=given.value_heads, head_dim=given.head_dim)
    report: dict[str, Any] = {
        "machine": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "parameters": heads | {"chunk": given.chunk, "hidden": given.hidden},
        "operator": [],
        "layer": [],
        "fla": [],
    }

    def keep(part: str, found: dict[str, Any]) -> None:
        report[part].append(found)
        print(part, json.dumps(found, indent=1), flush=True)
        if given.output:
            Path(given.output).write_text(json.dumps(report, indent=2) + "\n")

    num_ranks = given.ranks or (torch.cuda.device_count() if device == "cuda" else 1)
    if num_ranks > 1:
        for num_tokens in given.tokens:
            job = heads | dict(hidden=given.hidden, chunk=given.chunk, repeats=given.repeats)
            keep("layer", layers(job | dict(tokens=num_tokens, device=device, world=num_ranks)))
    cpu_shim.install()
    for num_tokens in given.tokens:
        case = make_operator(num_tokens, **heads, chunk=given.chunk, device=device)
        if "own" in given.kernels:
            keep("operator", operator_report(case, num_slices=given.slices, repeats=given.repeats))
        if "fla" in given.kernels and device == "cuda" and _has_fla():
            keep("fla", fla_report(case, num_slices=given.slices, repeats=given.repeats))


def _has_fla() -> bool:
    import importlib.util

    return importlib.util.find_spec("fla") is not None


if __name__ == "__main__":
    main()
