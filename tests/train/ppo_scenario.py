"""A tiny network, batches for it, and trainers in this process: what the trainer's tests share."""

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from t1core.config.off_policy import OffPolicySettings
from t1core.model.checkpoint import init_hf
from t1core.model.shape import ModelShape
from t1core.records import Batch
from t1core.rl import ValueBins
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


def make_batch(*, num_rows=6, seed=0, version=0, rewards=None, longest=40, lengths=None):
    """Rows of 10 to `longest` random tokens (or of `lengths`) in turns of 3, routes at random but valid."""
    generator = np.random.default_rng(seed)
    if lengths is None:
        lengths = generator.integers(10, longest + 1, num_rows)
    num_rows, lengths = len(lengths), np.asarray(lengths)
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


# Objectives beside the plain one, each with several switches on; all of them train on awkward batches.
OBJECTIVES = {
    "histogram": dict(
        value_bins=ValueBins(12, low=0.0, high=1.2),
        critic_lambd=0.95,
        lambd_alpha=0.2,
        critic_steps=2,
        value_clip=0.05,
        off_policy=OffPolicySettings(
            policy_loss="gspo",
            gspo_eps_clip=0.3,
            gspo_eps_clip_high=0.3,
            importance="mis_geometric",
            mis_low=0.1,
            mis_high=10.0,
        ),
    ),
    "groups": dict(
        advantage="grpo",
        dual_clip=3.0,
        eps_clip_high=0.28,
        actor_frozen=("embed_tokens",),
        off_policy=OffPolicySettings(importance="tis"),
    ),
    "trust": dict(
        chunk_reward="once",
        gamma=0.99,
        lambd=0.9,
        loss_aggregation="trial_mean",
        actor_steps=2,
        critic_frozen=("embed_tokens",),
        off_policy=OffPolicySettings(ratio_denominator="rollout", trust_region="sat_continuous"),
    ),
    "masked": dict(
        normalize_advantages=True,
        loss_aggregation="token_mean",
        off_policy=OffPolicySettings(
            policy_loss="dppo_kl",
            importance="mis_sequence",
            mis_low=1e-4,
            mis_high=1e4,
            mis_veto=0.05,
            mis_normalize=True,
        ),
    ),
    "decoupled": dict(
        actor_steps=2,
        off_policy=OffPolicySettings(ratio_denominator="current", importance="decoupled", policy_loss="ipo"),
    ),
}


def awkward_batch(*, seed, version):
    """Rows of which context-parallel ranks hold one token or none, the first two chunks of one trial, two groups of
    tasks, and engine log-probs that differ a little from token to token."""
    batch = make_batch(lengths=[2, 17, 1, 31, 9, 24], seed=seed, version=version)
    mask, versions, rewards = (x.copy() for x in (batch.loss_mask, batch.weight_versions, batch.rewards))
    mask[1], versions[1] = 1, version  # the only token of the first row that anything predicts
    rewards[1] = rewards[0]
    noise = np.random.default_rng(seed).normal(0, 0.3, batch.num_tokens)
    return replace(
        batch,
        loss_mask=mask,
        weight_versions=versions,
        rewards=rewards,
        rollout_ids=(batch.rollout_ids[1], *batch.rollout_ids[1:]),
        rollout_log_probs=np.where(mask, noise - 4.0, 0).astype(np.float32),
        groups=np.array([0, 0, 0, 0, 1, 1], dtype=np.int32),
    )


def plain_batch(*, seed, version):
    return make_batch(num_rows=5, seed=seed, version=version)


def pipelined_steps(made, *, first=0, count=2, batch=plain_batch):
    """Steps of the pipelined loop: step i trains on what version i - 1 sampled while version i is live."""
    results = []
    for step in range(first, first + count):
        made_of = batch(seed=step, version=max(0, step - 1))
        results.append(made.train_batch(made_of, update_actor=True, expected_version_lag=min(step, 1)))
        made.rotate(step + 1)
    return results


def without_loss(batch):
    """The same batch with nothing to train on."""
    return replace(
        batch,
        loss_mask=np.zeros_like(batch.loss_mask),
        weight_versions=np.full_like(batch.weight_versions, -1),
    )
