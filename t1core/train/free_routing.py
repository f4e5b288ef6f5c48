"""Free routing beside the record: what the trainer's routers would choose, and where that is another set of experts.

A flip is a (token, layer) whose router, left free, picks another set than the engine's did. Only rows that predict
something have a record to compare with.
"""

from dataclasses import dataclass

import torch

from t1core.model import replay
from t1core.train.actor_update import score_batch
from t1core.train.learner import Learner
from t1core.train.streams import BatchStreams


@dataclass(frozen=True)
class FreePass:
    """logprobs float32 [T] of the batch. flips: of each micro-batch, bool [P, layers of this pipeline stage]."""

    logprobs: torch.Tensor
    flips: tuple[torch.Tensor, ...]


def score_freely(actor: Learner, *, streams: BatchStreams) -> FreePass:
    """Score a batch that carries routes with free routing, and compare the choices with the record."""
    replay.record(actor.model)
    logprobs = score_batch(actor, streams=streams, replayed=False)
    lengths = [len(micro) for micro in streams.micro_batches]
    chosen = replay.recorded(actor.model).split(lengths)
    replay.disarm(actor.model)
    layers = replay.layer_numbers(actor.model)
    flips = []
    for micro, free in zip(streams.micro_batches, chosen, strict=True):
        assert micro.routes is not None, (
            "free choices are compared with a record: put the batch with its routes"
        )
        flips.append((free != micro.routes[:, layers].long()).any(-1))
    return FreePass(logprobs, tuple(flips))


def flipped_layers(free: FreePass, *, streams: BatchStreams) -> torch.Tensor:
    """How many layers of all stages flip for the token each position predicts, float32 [T]."""
    return streams.merge([flips.sum(-1) for flips in free.flips])


def flip_metrics(flipped: torch.Tensor, *, mask: torch.Tensor, num_layers: int) -> dict[str, float]:
    """Over loss tokens: the share of router choices that flip, and of tokens with any flip. flipped, mask: [T]."""
    counts = flipped[mask].double()
    return {
        "routing/flip_frac": float(counts.mean()) / num_layers,
        "routing/flip_token_frac": float((counts > 0).double().mean()),
    }
