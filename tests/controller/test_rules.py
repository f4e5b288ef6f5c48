import numpy as np
import pytest

from t1core.config import load_config
from t1core.controller.check import check_batch, expected_staleness, sampled_versions, weight_version
from t1core.controller.schedule import draw_tasks, step_specs, trial_seed
from t1core.records import Batch, ModelCall, RowStatus, StopReason, TrainingRow, Trajectory
from t1core.rollout.estimates import TaskEstimates
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
    only = sampled_versions(3, trained_at=4, max_staleness=1)
    assert list(only) == [3]
    check_batch(batch, results, versions=only)
    with pytest.raises(AssertionError, match="weight versions"):
        check_batch(batch, results, versions=range(2, 3))
    batch.tokens[5] += 1
    with pytest.raises(AssertionError, match="differ"):
        check_batch(batch, results, versions=only)
    batch.tokens[5] -= 1
    batch.loss_mask[3] = 1
    with pytest.raises(AssertionError, match="loss region"):
        check_batch(batch, results, versions=only)


def test_a_trial_that_lived_on_may_hold_tokens_of_two_versions_and_never_of_an_older_or_in_another_order():
    older = accepted([7, 8, 9], version=2)
    row = older.rows[0]
    row.weight_versions[-1] = 3
    batch = Batch.from_rows([row], step=0, num_tests=[3])
    allowed = sampled_versions(3, trained_at=4, max_staleness=2)
    assert list(allowed) == [2, 3]
    check_batch(batch, [older], versions=allowed)
    with pytest.raises(AssertionError, match=r"weight versions \[2, 3\], the engine held 3"):
        check_batch(batch, [older], versions=sampled_versions(3, trained_at=4, max_staleness=1))
    batch.weight_versions[-3:] = 2, 3, 2
    with pytest.raises(AssertionError, match="newer version before an older"):
        check_batch(batch, [older], versions=allowed)


def test_a_row_with_one_route_too_few_cannot_be_made():
    row = accepted([1, 2]).rows[0]
    with pytest.raises(AssertionError, match="expected 5"):
        TrainingRow(
            row.rollout_id, 0, row.tokens, 2, row.loss_mask, row.rollout_log_probs,
            row.rollout_routed_experts[:-1], row.weight_versions, 0.0, RowStatus.COMPLETED, (),
        )  # fmt: skip


class Pool:
    def stretch(self, split, *, seed, start, count, shuffle):
        return [Named(f"{split}-{position}") for position in range(start, start + count)]


def test_steps_walk_through_the_pool_without_gap_or_overlap():
    config = load_config("smoke")
    count = config.rollout.over_sampling_batch_size
    assert walk(config, num_steps=3, count=count)[0] == [f"train-{i}" for i in range(3 * count)]


def walk(config, *, num_steps, count):
    """(tasks in the order of their launch, all specs)."""
    position, specs = 0, []
    for step in range(num_steps):
        draw = draw_tasks(config, Pool(), start=position, count=count, estimates=TaskEstimates())
        position = draw.position
        specs += step_specs(config, draw.tasks, step=step, estimates=TaskEstimates())
    return [spec.task.task_id for spec in specs], specs


class Named:
    """A task that has a name."""

    family = "family"

    def __init__(self, task_id):
        self.task_id = task_id


def test_the_samples_of_a_task_stand_side_by_side_and_the_walk_goes_on_task_by_task():
    config = load_config(
        "smoke",
        ["rollout.samples_per_task=2", "rollout.over_sampling_batch_size=6", "rollout.max_live_trials=6"],
    )
    tasks, specs = walk(config, num_steps=2, count=3)
    assert tasks == [f"train-{i // 2}" for i in range(12)]
    assert [spec.group for spec in specs] == [0, 0, 1, 1, 2, 2] * 2
    assert len({spec.sampling_seed for spec in specs}) == len({spec.trial_id for spec in specs}) == 12


def test_every_trial_has_its_own_seed():
    seeds = {trial_seed(seed, step, i) for seed in range(3) for step in range(-1, 20) for i in range(30)}
    assert len(seeds) == 3 * 21 * 30 and max(seeds) < 2**63
