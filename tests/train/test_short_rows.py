"""Rows so short that context-parallel ranks hold one token of them or none: the same numbers as one process."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from t1core.records import Batch
from t1core.rl import ValueBins, gae, hl_gauss_loss, policy_loss, token_weights, value_loss
from t1core.train import streams as device_streams
from t1core.train.packing import pack_rows
from t1core.train.streams import BatchStreams, DeviceMicroBatch, trial_of_row

LENGTHS = [2, 3, 1, 9, 2]
# The only loss token of rows 0 and 4 is their last; row 2 has none.
MASK = np.array([0, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 1, 1, 0, 1, 0, 1], dtype=np.uint8)


def _batch():
    total = sum(LENGTHS)
    return Batch(
        step=0,
        rollout_ids=("a", "b", "c", "d", "e"),
        tokens=np.arange(total, dtype=np.int32),
        cu_seqlens=np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int64),
        loss_mask=MASK,
        rollout_log_probs=np.zeros(total, np.float32),
        weight_versions=np.where(MASK, 0, -1).astype(np.int32),
        routed_experts=None,
        rewards=np.array([0.1, 0.2, 0.9, 0.4, 0.5], np.float32),
        num_tests=np.ones(5, np.int32),
    )


def _shard(batch, *, cp_size, cp_rank):
    micro = pack_rows(batch, rows=range(5), row_multiple=2 * cp_size, cp_size=cp_size, cp_rank=cp_rank)
    empty = torch.zeros(len(micro), dtype=torch.int64)
    return DeviceMicroBatch(
        empty, empty, empty, torch.from_numpy(micro.target_source), torch.from_numpy(micro.cu_seqlens), None
    )


@pytest.fixture
def batch(monkeypatch):
    monkeypatch.setattr(device_streams, "reduce_over_batch", lambda x: x)  # the test adds the ranks up itself
    return _batch()


@pytest.mark.parametrize("cp_size", [1, 2, 4, 8])
def test_values_advantages_losses_and_gradients_are_those_of_one_process(batch, cp_size):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(len(MASK), generator=generator)
    rows = torch.repeat_interleave(torch.arange(5), torch.tensor(LENGTHS))
    mask = torch.from_numpy(MASK).bool()
    shared = dict(rows=rows, trials=torch.from_numpy(trial_of_row(batch)))
    weights = token_weights(mask, aggregation="row_mean", **shared)
    shards = [_shard(batch, cp_size=cp_size, cp_rank=rank) for rank in range(cp_size)]
    held = [int(shard.take(mask).sum()) for shard in shards]
    assert sum(held) == MASK.sum()
    assert cp_size < 8 or {0, 1} <= set(held), "some rank holds no loss token, and some one"

    merged = torch.zeros_like(values)
    for shard in shards:
        own = BatchStreams(mask, rows, shared["trials"], torch.from_numpy(batch.rewards), values, 5, (shard,))
        # What stands at positions that predict nothing is poison, as a model may well leave there.
        local = torch.where(shard.source >= 0, shard.take(values), float("nan"))
        merged += own.merge([local])
    trained = mask.nonzero().squeeze(1)
    assert torch.equal(merged[trained], values[trained])
    expected = gae(values, rewards=own.rewards, mask=mask, rows=rows, gamma=0.9, lambd=0.8)
    got = gae(merged, rewards=own.rewards, mask=mask, rows=rows, gamma=0.9, lambd=0.8)
    assert torch.equal(got.advantages, expected.advantages) and torch.equal(got.returns, expected.returns)
    whole = gae(merged, rewards=own.rewards, mask=mask, rows=rows, gamma=1.0, lambd=1.0)
    assert torch.equal(whole.returns[mask], own.rewards[rows][mask]), "R = r, to the bit"
    assert torch.equal(whole.advantages[mask], (own.rewards[rows] - values)[mask]), "A = r - V, to the bit"

    for loss in (_policy, _value, _histogram):
        whole, whole_gradient = loss(values, mask, got, weights)
        total, gradient = 0.0, torch.zeros_like(values)
        for shard in shards:
            local = torch.where(shard.source >= 0, shard.take(values), float("nan"))
            taken = type(got)(shard.take(got.advantages), shard.take(got.returns))
            part, part_gradient = loss(local, shard.take(mask), taken, shard.take(weights))
            total += part
            predicted = shard.source >= 0
            assert part_gradient[~predicted].eq(0).all()
            gradient[shard.source[predicted]] += part_gradient[predicted]
        assert total == pytest.approx(whole, rel=1e-6)
        assert torch.allclose(gradient, whole_gradient, rtol=0, atol=1e-7)


def _summed(x, terms, weights):
    total = (terms.per_token * weights).sum()
    total.backward()
    return total.item(), x.grad


def _policy(stream, mask, target, weights):
    x = stream.clone().requires_grad_()
    terms = policy_loss(
        x, behaviour_logprobs=torch.zeros_like(x), advantages=target.advantages, mask=mask, eps_clip=0.2
    )
    return _summed(x, terms, weights)


def _value(stream, mask, target, weights):
    x = stream.clone().requires_grad_()
    terms = value_loss(x, old_values=torch.zeros_like(x), returns=target.returns, mask=mask, value_clip=0.2)
    return _summed(x, terms, weights)


def _histogram(stream, mask, target, weights):
    x = stream.clone().requires_grad_()
    logits = x.unsqueeze(-1) * torch.linspace(-1, 1, 8)
    terms = hl_gauss_loss(
        logits,
        old_values=torch.zeros_like(x),
        returns=target.returns,
        mask=mask,
        value_clip=0.2,
        bins=ValueBins(8),
    )
    # NaN times the clean zero gradient of a masked row would be NaN: the head's inputs there are what a model gives.
    total = (terms.per_token * weights).sum()
    (gradient,) = torch.autograd.grad(total, logits)
    return total.item(), (gradient * torch.linspace(-1, 1, 8)).sum(-1)


def test_chunks_that_do_not_lie_side_by_side_or_differ_in_reward_are_caught():
    batch = _batch()
    assert trial_of_row(batch).tolist() == [0, 1, 2, 3, 4]
    chunks = replace(
        batch, rollout_ids=("a", "a", "b", "b", "b"), rewards=np.array([1, 1, 2, 2, 2], np.float32)
    )
    assert trial_of_row(chunks).tolist() == [0, 0, 1, 1, 1]
    with pytest.raises(AssertionError, match="side by side"):
        trial_of_row(replace(batch, rollout_ids=("a", "b", "a", "d", "e")))
    with pytest.raises(AssertionError, match="different rewards"):
        trial_of_row(replace(chunks, rewards=np.array([1, 3, 2, 2, 2], np.float32)))
