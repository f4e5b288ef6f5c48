"""A tiny network, batches for it, and trainers in this process: what the trainer's tests share."""

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from t1core.model.checkpoint import init_hf
from t1core.model.shape import ModelShape
from t1core.records import Batch
from t1core.train.adam import Adam
from t1core.train.learning_rate import LearningRate
from t1core.train.settings import TrainSettings
from t1core.train.trainer import Trainer

SHAPE = ModelShape.nano(
    vocab_size=64,
    hidden_size=64,
    head_dim=16,
    linear_num_key_heads=4,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    moe_intermediate_size=32,
    shared_expert_intermediate_size=32,
    initializer_range=0.1,
)


def make_batch(*, num_rows=6, seed=0, version=0, rewards=None, longest=40):
    """Rows of 10 to `longest` random tokens in turns of 3, routes at random but valid."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(10, longest + 1, num_rows)
    total = int(lengths.sum())
    place = np.concatenate([np.arange(n) for n in lengths])
    mask = ((place > 4) & (place // 3 % 2 == 1)).astype(np.uint8)
    scores = generator.random((total - num_rows, SHAPE.num_layers, SHAPE.num_experts))
    routes = np.sort(np.argsort(scores, axis=-1)[..., : SHAPE.num_experts_per_tok], axis=-1)
    if rewards is None:
        rewards = generator.random(num_rows)
    return Batch(
        step=0,
        rollout_ids=tuple(f"row-{i}" for i in range(num_rows)),
        tokens=generator.integers(0, SHAPE.vocab_size, total).astype(np.int32),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        loss_mask=mask,
        rollout_log_probs=np.where(mask, -4.0, 0.0).astype(np.float32),
        weight_versions=np.where(mask, version, -1).astype(np.int32),
        routed_experts=routes.astype(np.uint8),
        rewards=np.asarray(rewards, dtype=np.float32),
        num_tests=generator.integers(3, 6, num_rows).astype(np.int32),
    )


def write_checkpoint(directory):
    init_hf(SHAPE, directory, seed=0)
    return str(directory)


def settings(actor_path, **overrides):
    """Learning rates that move things, and an epsilon that keeps Adam's step near linear in the gradient."""
    values = dict(
        actor_path=str(actor_path),
        critic_path=None,
        shape=SHAPE,
        actor=adam(1e-3),
        critic=adam(1e-3),
        max_tokens_per_gpu=256,
    )
    return TrainSettings(**{**values, **overrides})


def adam(lr, *, eps=1e-2, weight_decay=0.1):
    return Adam(LearningRate(lr), eps=eps, weight_decay=weight_decay)


@contextlib.contextmanager
def trainer(actor_path, **overrides):
    """A trainer that is a world of its own."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        dist.init_process_group("gloo", init_method=f"file://{Path(scratch) / 'store'}", rank=0, world_size=1)
        made = Trainer(settings(actor_path, **overrides))
        try:
            made.setup()
            yield made
        finally:
            made.close()


def pipelined_steps(made, *, first=0, count=2):
    """Steps of the pipelined loop: step i trains on what version i - 1 sampled while version i is live."""
    results = []
    for step in range(first, first + count):
        batch = make_batch(num_rows=5, seed=step, version=max(0, step - 1))
        results.append(made.train_batch(batch, update_actor=True, expected_version_lag=min(step, 1)))
        made.rotate(step + 1)
    return results


def without_loss(batch):
    """The same batch with nothing to train on."""
    return replace(
        batch,
        loss_mask=np.zeros_like(batch.loss_mask),
        weight_versions=np.full_like(batch.weight_versions, -1),
    )
