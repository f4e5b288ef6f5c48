"""Passes over made-up rows before the first step, so that no step pays for kernels that compile on first use.

Every pass that a step makes is made once for each of two sizes of batch, since what is compiled for one size may be
compiled again, for any size, at the second. Nothing is learnt: gradients are dropped, and no optimiser steps.
"""

import time

import numpy as np
import torch

from t1core.model.scoring import score
from t1core.model.shape import ModelShape
from t1core.records.batch import Batch
from t1core.train.actor_update import score_batch
from t1core.train.free_routing import score_freely
from t1core.train.learner import Learner, Role
from t1core.train.streams import BatchStreams, DeviceMicroBatch


def made_up_batch(shape: ModelShape, *, lengths: tuple[int, ...], with_routes: bool) -> Batch:
    """Random tokens, all but each row's first in the loss, routes that are valid and nobody's choice."""
    rng = np.random.default_rng(0)
    total, num_rows = sum(lengths), len(lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    mask = np.ones(total, np.uint8)
    mask[starts[:-1]] = 0
    routes = None
    if with_routes:
        draws = rng.random((total - num_rows, shape.num_layers, shape.num_experts), dtype=np.float32)
        routes = np.sort(np.argsort(draws, axis=-1)[..., : shape.num_experts_per_tok], axis=-1)
        routes = routes.astype(np.uint8 if shape.num_experts <= 256 else np.int32)
    return Batch(
        step=0,
        rollout_ids=tuple(f"warm-up-{i}" for i in range(num_rows)),
        tokens=rng.integers(0, shape.vocab_size, total).astype(np.int32),
        cu_seqlens=starts,
        loss_mask=mask,
        rollout_log_probs=np.where(mask, -1.0, 0.0).astype(np.float32),
        weight_versions=np.where(mask, 0, -1).astype(np.int32),
        routed_experts=routes,
        rewards=np.zeros(num_rows, np.float32),
        num_tests=np.ones(num_rows, np.int32),
    )


def warm_up(
    learner: Learner, role: Role, *, streams: BatchStreams, replayed: bool, is_scored_freely: bool
) -> float:
    """Each kind of pass of a step, once; the seconds they took. The learner is as before, gradients dropped."""
    began = time.perf_counter()
    if role == "actor":
        score_batch(learner, streams=streams, replayed=replayed)
        if is_scored_freely:
            score_freely(learner, streams=streams)
    else:
        learner.score(streams.micro_batches, lambda out, _: out.float().sum())

    def loss(out: torch.Tensor, micro: DeviceMicroBatch) -> tuple[torch.Tensor, None]:
        ends = score(out, micro.targets, model=learner.model)[0] if role == "actor" else out.float()
        return ends.square().mean(), None

    learner.accumulate(streams.micro_batches, loss, replayed=replayed and role == "actor")
    learner.drop_gradients()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began
