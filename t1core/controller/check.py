"""What must hold in every step, asserted in the run itself and not only in tests."""

from collections.abc import Sequence

import numpy as np

from t1core.records import Batch
from t1core.rollout.trial import TrialResult


def weight_version(iteration: int, *, num_critic_only_steps: int, publish_every: int = 1) -> int:
    """Version after the barrier of `iteration`, in which batch `iteration - 1` was trained: the actor steps that the
    published weights have made."""
    num_updates = max(0, iteration - num_critic_only_steps)
    return num_updates - num_updates % publish_every


def expected_staleness(step: int, *, num_critic_only_steps: int, publish_every: int = 1) -> int:
    """Versions between sampling batch `step` and training on it, one step later: 1 once the weights move, 0 before.
    Where only every so many updates are published, the distance of the two publications."""
    return weight_version(
        step, num_critic_only_steps=num_critic_only_steps, publish_every=publish_every
    ) - weight_version(step - 1, num_critic_only_steps=num_critic_only_steps, publish_every=publish_every)


def sampled_versions(version: int, *, trained_at: int, max_staleness: int) -> range:
    """The versions that may have sampled a batch that was whole while the engine held `version`, and that is trained at
    `trained_at`. In one-step mode (`max_staleness` 1) `version` alone, so no request spans two; else none
    more than `max_staleness` before `trained_at`."""
    oldest = version if max_staleness == 1 else max(0, trained_at - max_staleness)
    return range(oldest, version + 1)


def check_batch(
    batch: Batch, accepted: Sequence[TrialResult], *, versions: range, is_reencoded: bool = False
) -> None:
    """Sampled tokens are the trained tokens (but for rows that were re-encoded on purpose), one routing row a forwarded
    token, all sampled within `versions` and, within a row, by no older version than the tokens before."""
    sampled = np.concatenate(
        [call.completion_token_ids for item in accepted for call in item.trajectory.calls]
    )
    trained = batch.tokens[batch.loss_mask.astype(bool)]
    assert is_reencoded or np.array_equal(sampled, trained), (
        f"step {batch.step}: {len(sampled)} tokens sampled, {len(trained)} in the loss region, and they differ"
    )
    assert batch.routed_experts is not None, f"step {batch.step}: the engine returned no routes"
    assert len(batch.routed_experts) == batch.num_tokens - len(batch), (
        f"step {batch.step}: {len(batch.routed_experts)} routing rows for {batch.num_tokens} tokens in "
        f"{len(batch)} rows"
    )
    mask = batch.loss_mask.astype(bool)
    found = np.unique(batch.weight_versions[mask]).tolist()
    assert set(found) <= set(versions), (
        f"step {batch.step}: tokens carry weight versions {found}, the engine held {versions[-1]}"
        + (f" and {versions[0]} is the oldest that may be trained" if len(versions) > 1 else "")
    )
    for row in range(len(batch)):
        here = slice(batch.cu_seqlens[row], batch.cu_seqlens[row + 1])
        steps = np.diff(batch.weight_versions[here][mask[here]])
        assert (steps >= 0).all(), (
            f"step {batch.step}: trial {batch.rollout_ids[row]} was sampled by a newer version before an older one"
        )
