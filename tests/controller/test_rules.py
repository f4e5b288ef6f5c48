import numpy as np
import pytest

from t1core.config import load_config
from t1core.controller.check import check_batch, expected_staleness, weight_version
from t1core.controller.schedule import step_specs, trial_seed
from t1core.records import Batch, ModelCall, RowStatus, StopReason, TrainingRow, Trajectory
from t1core.rollout.trial import TrialResult


def one_step_mode(num_steps, num_critic_only_steps):
    """(version that samples batch k, version it is trained at), by walking the loop's iterations."""
    version, sampled = 0, {}
    for iteration in range(num_steps + 1):
        if iteration < num_steps:
            sampled[iteration] = version
        if iteration > 0:
            yield iteration - 1, sampled[iteration - 1], version
        version = weight_version(iteration, num_critic_only_steps=num_critic_only_steps)


@pytest.mark.parametrize("critic_only", [0, 1, 2, 5])
def test_training_is_one_version_ahead_once_the_weights_move_and_none_before(critic_only):
    lags = {step: trained - sampled for step, sampled, trained in one_step_mode(9, critic_only)}
    assert lags == {step: expected_staleness(step, num_critic_only_steps=critic_only) for step in range(9)}
    assert [lags[step] for step in range(critic_only + 1)] == [0] * (critic_only + 1)
    assert {lags[step] for step in range(critic_only + 1, 9)} == {1}


def accepted(ids, *, version=3):
    prompt, sampled = np.arange(4, dtype=np.int32), np.array(ids, dtype=np.int32)
    n = len(prompt) + len(sampled)
    call = ModelCall(
        "c", "t", None, prompt, sampled, np.zeros(len(sampled), np.float32), "stop", version,
        np.full(len(sampled), version, np.int32), np.ones((n - 1, 2, 1), np.uint8), 0,
    )  # fmt: skip
    mask = (np.arange(n) >= len(prompt)).astype(np.uint8)
    row = TrainingRow(
        "t", 0, np.concatenate([prompt, sampled]), len(sampled), mask, np.zeros(n, np.float32),
        call.routed_experts, np.where(mask, version, -1).astype(np.int32), 0.5, RowStatus.COMPLETED, (),
    )  # fmt: skip
    trajectory = Trajectory("t", "task", "f", "train", 3, 0, StopReason.COMPLETED, None, (), (call,), None)
    return TrialResult(trajectory, (row,))


def test_a_faithful_batch_passes_and_each_fault_is_caught():
    results = [accepted([7, 8, 9]), accepted([5])]
    rows = [row for item in results for row in item.rows]
    batch = Batch.from_rows(rows, step=0, num_tests=[3, 3])
    check_batch(batch, results, version=3)
    with pytest.raises(AssertionError, match="weight versions"):
        check_batch(batch, results, version=2)
    batch.tokens[5] += 1
    with pytest.raises(AssertionError, match="differ"):
        check_batch(batch, results, version=3)
    batch.tokens[5] -= 1
    batch.loss_mask[3] = 1
    with pytest.raises(AssertionError, match="loss region"):
        check_batch(batch, results, version=3)


def test_a_row_with_one_route_too_few_cannot_be_made():
    row = accepted([1, 2]).rows[0]
    with pytest.raises(AssertionError, match="expected 5"):
        TrainingRow(
            row.rollout_id, 0, row.tokens, 2, row.loss_mask, row.rollout_log_probs,
            row.rollout_routed_experts[:-1], row.weight_versions, 0.0, RowStatus.COMPLETED, (),
        )  # fmt: skip


class Pool:
    def stretch(self, split, *, seed, start, count, shuffle):
        return [f"{split}-{position}" for position in range(start, start + count)]


def test_steps_walk_through_the_pool_without_gap_or_overlap():
    config = load_config("smoke")
    count = config.rollout.over_sampling_batch_size
    tasks = [spec.task for step in range(3) for spec in step_specs(config, Pool(), step=step)]
    assert tasks == [f"train-{i}" for i in range(3 * count)]


def test_the_samples_of_a_task_stand_side_by_side_and_the_walk_goes_on_task_by_task():
    config = load_config(
        "smoke",
        ["rollout.samples_per_task=2", "rollout.over_sampling_batch_size=6", "rollout.max_live_trials=6"],
    )
    specs = [spec for step in range(2) for spec in step_specs(config, Pool(), step=step)]
    assert [spec.task for spec in specs] == [f"train-{i // 2}" for i in range(12)]
    assert [spec.group for spec in specs] == [0, 0, 1, 1, 2, 2] * 2
    assert len({spec.sampling_seed for spec in specs}) == len({spec.trial_id for spec in specs}) == 12


def test_every_trial_has_its_own_seed():
    seeds = {trial_seed(seed, step, i) for seed in range(3) for step in range(-1, 20) for i in range(30)}
    assert len(seeds) == 3 * 21 * 30 and max(seeds) < 2**63
