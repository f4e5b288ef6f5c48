"""The trainer on a GPU beside what bounds it: replay, actor training, the swap of actor and critic.

    python -m benchmarks.gpu_limits --size 12-layer --rows 16 --length 2048

- replay: an update with the experts given, against the same update routing freely. The given ones are those that free
  routing chooses, so that both spread tokens over experts alike.
- actor training: what a campaign's step does to the actor (packing, the clipped surrogate, its metrics, gradients and
  Adam), against Megatron-core's own schedule and optimiser on the same packed rows with a plain loss.
- swap: bytes of weights and optimiser states out and back, checksums included, against one pinned copy of as many.

Both sides take turns in one process and the medians are compared. The model is random: nothing is learnt.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_model import alone, machine, make_batch, make_shape, num_params, write_random
from benchmarks.gpu_profile import update
from benchmarks.kept import Comparison, finish
from t1core.model import replay
from t1core.records import Batch
from t1core.rl import token_weights
from t1core.train import offload
from t1core.train.settings import TrainSettings
from t1core.train.surrogate import surrogate
from t1core.train.trainer import Trainer


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def in_turn(ways: dict[str, Callable[[], Any]], *, repeats: int) -> dict[str, float]:
    """Median seconds of each way, all of them once in every round, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, work in ways.items():
            synchronise()
            began = time.perf_counter()
            work()
            synchronise()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def own_routes(trainer: Trainer, batch: Batch) -> Batch:
    """The batch with the experts that the actor itself chooses, in place of random ones."""
    streams = trainer._put(batch, with_routes=True)
    replay.record(trainer.actor.model)
    trainer.actor.score(streams.micro_batches, lambda out, _: None)
    chosen = replay.recorded(trainer.actor.model)
    replay.disarm(trainer.actor.model)
    routes = batch.routed_experts.copy()
    lengths = [len(micro) for micro in streams.micro_batches]
    starts = torch.tensor(batch.cu_seqlens[:-1])
    for micro, own in zip(streams.micro_batches, chosen.split(lengths), strict=True):
        source = micro.source.cpu()
        known = (
            source >= 0
        )  # position p predicts token source[p]; its route is number source[p] - 1 - (rows before)
        row = torch.bucketize(source[known], starts, right=True) - 1
        routes[(source[known] - 1 - row).numpy()] = own.cpu()[known].numpy()
    return dataclasses.replace(batch, routed_experts=routes)


def replay_overhead(trainer: Trainer, batch: Batch, *, repeats: int) -> dict[str, float]:
    """Seconds of an update with recorded experts and with free routing."""
    streams = trainer._put(batch, with_routes=True)
    return in_turn(
        {
            "replayed": lambda: update(trainer, streams),
            "free": lambda: update(trainer, streams, replayed=False),
        },
        repeats=repeats,
    )


def actor_training(trainer: Trainer, batch: Batch, *, repeats: int) -> dict[str, float]:
    """Seconds of a campaign's actor update, packing included, and of a bare one."""
    from t1core.train.actor_update import update_actor

    packed = trainer._put(batch, with_routes=True)
    settings = trainer.settings
    denominator = torch.full((packed.num_tokens,), -8.0, device=packed.device)
    advantages = torch.linspace(-1, 1, packed.num_tokens, device=packed.device)

    def campaign() -> None:
        streams = trainer._put(batch, with_routes=True)
        weights = token_weights(
            streams.mask, rows=streams.rows, trials=streams.trials, aggregation=settings.loss_aggregation
        )
        terms = surrogate(
            settings.surrogate, streams=streams, denominator=denominator, advantages=advantages,
            weights=weights.float(), live=None, reference=None,
        )  # fmt: skip
        update_actor(trainer.actor, streams=streams, surrogate=terms, replayed=True, moe_aux_loss_coeff=0.0)

    return in_turn(
        {"campaign": campaign, "bare": lambda: update(trainer, packed, replayed=False)}, repeats=repeats
    )


def swap(trainer: Trainer, *, repeats: int) -> dict[str, float]:
    """Seconds of a swap out and back, and of plain pinned copies of as many bytes."""
    learner = trainer.actor
    away = offload.offload(learner)
    moved = sum(len(host) for _, host in away.stored)
    offload.reload(learner, away)
    pinned = torch.empty(moved, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(moved, dtype=torch.uint8, device="cuda")
    held: list[offload.Away] = []
    taken = in_turn(
        {
            "out": lambda: held.append(offload.offload(learner)),
            "back": lambda: offload.reload(learner, held.pop()),
            "plain_out": lambda: pinned.copy_(device, non_blocking=True),
            "plain_back": lambda: device.copy_(pinned, non_blocking=True),
        },
        repeats=repeats,
    )
    return taken | {"moved_bytes": moved}


def comparisons(found: dict[str, dict[str, float]], *, num_tokens: int) -> list[Comparison]:
    told = []
    if "replay" in found:
        told.append(
            Comparison(
                "an update with replayed experts", "the same update routing freely", "s",
                found["replay"]["replayed"], found["replay"]["free"], is_more_better=False, target=1.02,
            )
        )  # fmt: skip
    if "actor" in found:
        told.append(
            Comparison(
                "actor training", "bare Megatron-core on the same packed rows", "tokens/s",
                num_tokens / found["actor"]["campaign"], num_tokens / found["actor"]["bare"],
                is_more_better=True, target=0.97,
            )
        )  # fmt: skip
    if "swap" in found:
        moved = found["swap"]
        for way, name in (("out", "to the host"), ("back", "to the device")):
            told.append(
                Comparison(
                    f"swap {name} with checksums", "one pinned copy of as many bytes", "GB/s",
                    moved["moved_bytes"] / moved[way] / 1e9, moved["moved_bytes"] / moved[f"plain_{way}"] / 1e9,
                    is_more_better=True, target=0.85,
                )
            )  # fmt: skip
    return told


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="12-layer")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--max-tokens", type=int, default=32_768)
    parser.add_argument("--kernels", default="auto", choices=["auto", "fused", "plain"])
    parser.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--keep", action="store_true", help="write the result where git keeps it")
    given = parser.parse_args()
    shape = make_shape(given.size)
    alone()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "model"
        write_random(shape, directory)
        trainer = Trainer(
            TrainSettings(
                actor_path=str(directory), critic_path=None, shape=shape, precision=given.precision,
                kernels=given.kernels, max_tokens_per_gpu=given.max_tokens, advantage="grpo",
            )
        )  # fmt: skip
        trainer.setup()
        batch = make_batch(shape, num_rows=given.rows, length=given.length, seed=0, version=0)
        batch = own_routes(trainer, batch)
        found: dict[str, Any] = {}
        parts: dict[str, Callable[[], Any]] = {
            "replay": lambda: replay_overhead(trainer, batch, repeats=given.repeats),
            "actor": lambda: actor_training(trainer, batch, repeats=given.repeats),
        }
        if torch.cuda.is_available():
            parts["swap"] = lambda: swap(trainer, repeats=given.repeats)
        for name, part in parts.items():
            found[name] = part()
            print(name, found[name], flush=True)
        computed_by = str(trainer.actor.kernels)
        trainer.close()
    finish(
        "gpu_limits",
        comparisons(found, num_tokens=batch.num_tokens),
        parameters={
            "size": given.size, "num_params": num_params(shape), "rows": given.rows, "length": given.length,
            "max_tokens_per_gpu": given.max_tokens, "precision": given.precision, "repeats": given.repeats,
        },
        detail=found | {"kernels": computed_by} | ({"gpu": machine()} if torch.cuda.is_available() else {}),
        keep=given.keep,
    )  # fmt: skip


if __name__ == "__main__":
    main()
