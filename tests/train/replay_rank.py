"""One rank that replays routes under several layouts in turn. Usage: replay_rank.py JOB.json

Rank 0 writes an .npz for each layout. What a layout must keep to by itself is asserted here, on every rank.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from forked_ranks import fork_ranks
from megatron.core import parallel_state
from ppo_scenario import adam, make_batch, settings

from t1core.model import replay
from t1core.model.experts import StackedExperts
from t1core.model.layout import Layout
from t1core.records import Batch
from t1core.train.actor_update import score_batch
from t1core.train.packing import MicroBatch
from t1core.train.streams import reduce_over_batch
from t1core.train.trainer import Trainer


def probe(made: Any, batch: Batch) -> dict[str, np.ndarray]:
    """What replay does in this layout.

    `free`: log-probs [T] with free routing. `own`: replaying the experts it chose, at every position. `record`:
    replaying them from a batch's record, which has no rows for padding and last tokens. `positions`: how many
    positions a layer's routers see. The rest as in `replayed`.
    """
    actor = made.actor
    streams = made._put(batch, with_routes=True)
    replay.record(actor.model)
    free = score_batch(actor, streams=streams, replayed=False)
    chosen, record = _choices(made, streams, batch)
    replay.disarm(actor.model)
    own = replace(
        streams,
        micro_batches=tuple(
            replace(micro, routes=routes) for micro, routes in zip(streams.micro_batches, chosen, strict=True)
        ),
    )
    recorded = made._put(replace(batch, routed_experts=record), with_routes=True)
    found = {
        "free": free.numpy(),
        "own": score_batch(actor, streams=own, replayed=True).numpy(),
        "record": score_batch(actor, streams=recorded, replayed=True).numpy(),
        "positions": _positions(streams),
    }
    _critic_leaves_cursors_alone(made, streams)
    return found | replayed(made, batch)


def replayed(made: Any, batch: Batch) -> dict[str, np.ndarray]:
    """`replayed`: log-probs [T] under the batch's own routes. `load` [L, E]: visits of each expert in that pass.
    `trained`, `loss`, `norm`, `moved/*`: one step of critic and actor, and what it did to each of the actor's weights.
    """
    streams = made._put(batch, with_routes=True)
    logprobs, load = _loads(made, lambda: score_batch(made.actor, streams=streams, replayed=True))
    before = made.export_actor()
    result = made.train_batch(batch, update_actor=True, expected_version_lag=0)
    after = made.export_actor()
    return {
        "replayed": logprobs.numpy(),
        "load": load,
        "trained": result.per_token["trainer_logprobs"],
        "loss": np.array([result.metrics[name] for name in ("actor/loss", "critic/loss")]),
        "norm": np.array([result.metrics[name] for name in ("actor/grad_norm", "critic/grad_norm")]),
        **{f"moved/{name}": after[name] - before[name] for name in after},
    }


def _choices(made: Any, streams: Any, batch: Batch) -> tuple[list[torch.Tensor], np.ndarray]:
    """The choices since `replay.record`: of each micro-batch at all its positions [P, L, k], and as a record of
    the whole batch [T - rows, L, k].
    """
    shape, layers = made.settings.shape, [layer.layer for layer in replay._layers(made.actor.model)]
    whole = torch.zeros(batch.routed_experts.shape, dtype=torch.int64)
    placed = torch.zeros(batch.routed_experts.shape[:2], dtype=torch.int64)
    chosen = []
    lengths = [len(micro) for micro in streams.micro_batches]
    for micro, here in zip(
        streams.micro_batches, replay.recorded(made.actor.model).split(lengths), strict=True
    ):
        all_layers = torch.zeros(len(micro), shape.num_layers, shape.num_experts_per_tok, dtype=torch.int64)
        all_layers[:, layers] = here
        predicted = micro.source >= 0
        source = micro.source[predicted]
        row = source - 1 - streams.rows[source]
        whole[row] += all_layers[predicted]
        placed[row[:, None], torch.tensor(layers)] += 1
        dist.all_reduce(all_layers, group=parallel_state.get_pipeline_model_parallel_group())
        chosen.append(all_layers)
    reduce_over_batch(whole)
    assert bool((reduce_over_batch(placed) == 1).all()), "a routing row was recorded twice or not at all"
    return chosen, whole.numpy().astype(np.uint8)


def _positions(streams: Any) -> np.ndarray:
    """Positions that the routers of one layer see, padding included, over all ranks."""
    own = torch.tensor(sum(len(micro) for micro in streams.micro_batches))
    dist.all_reduce(own, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    return own.numpy()


def _critic_leaves_cursors_alone(made: Any, streams: Any) -> None:
    """With the actor armed, the critic scores and trains; the actor's routes are still there, unread."""
    micro = streams.micro_batches[0]
    replay.arm(made.actor.model, micro.routes)
    layers = replay._layers(made.actor.model)
    waiting = [layer.forward[0].clone() for layer in layers]
    made.critic.score(streams.micro_batches, lambda out, _: None)
    made.critic.accumulate(streams.micro_batches, lambda out, _: (out.float().sum(), None))
    for layer, routes in zip(layers, waiting, strict=True):
        assert (len(layer.forward), len(layer.backward)) == (1, 0)
        assert torch.equal(layer.forward[0], routes)
    try:
        score_batch(made.actor, streams=streams, replayed=False)
    except AssertionError as error:
        assert "routes of an earlier pass were not consumed" in str(error)
    else:
        raise AssertionError("a free pass began while routes were waiting")
    replay.disarm(made.actor.model)


def _loads(made: Any, run: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, np.ndarray]:
    """run()'s result, and how many (position, choice) pairs reached each expert of each layer, all ranks."""
    shape = made.settings.shape
    load = torch.zeros(shape.num_layers, shape.num_experts, dtype=torch.int64)
    layers = [layer.layer for layer in replay._layers(made.actor.model)]
    experts = [module for module in made.actor.model.modules() if isinstance(module, StackedExperts)]
    hooks = []
    for layer, module in zip(layers, experts, strict=True):
        held = len(module.w1)
        first = held * parallel_state.get_expert_model_parallel_rank()

        def count(_: Any, args: tuple, layer: int = layer, first: int = first, held: int = held) -> None:
            load[layer, first : first + held] += torch.as_tensor(args[1]).long()

        hooks.append(module.register_forward_pre_hook(count))
    result = run()
    for hook in hooks:
        hook.remove()
    dist.all_reduce(load)
    return result, load.numpy()


def plant(fault: str) -> Callable[[], None]:
    """Break replay in one way; returns the repair."""
    gather, attach, arm, take = (
        MicroBatch.gather_routes, replay.attach, replay.arm, replay.LayerRoutes._next
    )  # fmt: skip
    own_rank = parallel_state.get_tensor_model_parallel_rank

    def late(self: Any, routes: np.ndarray, **how: Any) -> np.ndarray:
        return np.roll(gather(self, routes, **how), 1, axis=0)

    def halves_swapped(self: Any, routes: np.ndarray, **how: Any) -> np.ndarray:
        return np.roll(gather(self, routes, **how), len(self) // 2, axis=0)

    def first_slice(*args: Any) -> None:
        parallel_state.get_tensor_model_parallel_rank = lambda: 0
        try:
            arm(*args)
        finally:
            parallel_state.get_tensor_model_parallel_rank = own_rank

    def stage_layers(model: Any) -> None:
        attach(model)
        for place, layer in enumerate(replay._layers(model)):
            layer.layer = place

    def other_rows(self: Any, again: bool) -> torch.Tensor:
        routes = take(self, again)
        return routes.roll(1, dims=0) if again else routes

    owner, name, broken, whole = {
        "routes one position late": (MicroBatch, "gather_routes", late, gather),
        "routes not cut in zigzag": (MicroBatch, "gather_routes", halves_swapped, gather),
        "every tensor rank replays the first slice": (replay, "arm", first_slice, arm),
        "each stage counts its layers from zero": (replay, "attach", stage_layers, attach),
        "recomputation replays other rows": (replay.LayerRoutes, "_next", other_rows, take),
    }[fault]
    setattr(owner, name, broken)
    return lambda: setattr(owner, name, whole)


def main(job: dict, rank: int) -> None:
    torch.set_num_threads(1)
    for name, one in job["runs"].items():
        dist.init_process_group(
            "gloo", init_method=f"file://{job['out']}/store_{name}", rank=rank, world_size=job["world"]
        )
        repair = plant(one["fault"]) if "fault" in one else None
        actor = adam(1e-3, weight_decay=0.0)
        made = Trainer(
            settings(
                job["actor_path"],
                layout=Layout(**one["layout"]),
                actor=actor,
                max_tokens_per_gpu=one.get("max_tokens", 64),
                recompute=one.get("recompute", False),
            )
        )
        made.setup()
        # A broken replay may trip over its own checks before it gets to what is to be compared.
        measure = replayed if "fault" in one else probe
        found = measure(made, make_batch(num_rows=5))
        if rank == 0:
            np.savez(Path(job["out"]) / f"{name}.npz", **found)
        made.close()
        if repair:
            repair()


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    fork_ranks(lambda rank: main(given, rank), world=given["world"])
