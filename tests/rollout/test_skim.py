import asyncio
from dataclasses import replace

import pytest

from t1core.records import Boundary, Failure, Grade, RewardSource, StopReason, Task, Trajectory
from t1core.rollout.pacing import Pacer
from t1core.rollout.skim import next_attempt, skim
from t1core.rollout.trial import TrialResult, TrialSpec
from t1core.routing import MissingRoutes

TASK = Task("t", "family", "train", None, "do", ("a",))


def spec(i):
    return TrialSpec(f"s-{i}", TASK, step=0, attempt=0, sampling_seed=i)


def result(trial, *, stop=StopReason.COMPLETED, failure=None, quarantined=False, rows=("a row",)):
    graded = stop is StopReason.COMPLETED and failure is None
    grade = Grade(0.5, RewardSource.CTRF, 1, 2, False, (), quarantined=quarantined) if graded else None
    trajectory = Trajectory(trial.trial_id, "t", "family", "train", 2, 0, stop, failure, (), (), grade)
    return TrialResult(trajectory, rows if graded else ())


class Host:
    """Trials that end when their time comes, and can be cut: a stand-in for a trial host, no more."""

    def __init__(self, seconds, *, outcome=lambda trial: result(trial)):
        self.seconds, self.outcome = seconds, outcome
        self.live, self.peak, self.launched = {}, 0, []

    async def launch(self, trial):
        self.launched.append(trial.trial_id)
        ended = self.live[trial.trial_id] = asyncio.Event()
        self.peak = max(self.peak, len(self.live))
        try:
            async with asyncio.timeout(self.seconds(trial)):
                await ended.wait()
            return result(trial, stop=StopReason.CUT)
        except TimeoutError:
            return self.outcome(trial)
        finally:
            del self.live[trial.trial_id]

    async def cut(self, trial_ids):
        for trial_id in trial_ids:
            if trial_id in self.live:
                self.live[trial_id].set()


def run(host, n, **options):
    options = {"accept": n, "max_live": n} | options
    return asyncio.run(skim([spec(i) for i in range(n)], launch=host.launch, cut=host.cut, **options))


def test_the_first_to_finish_are_kept_and_the_tail_is_cut_at_once():
    host = Host(lambda trial: 60.0 if trial.sampling_seed in (2, 5) else 0.01)
    rollout = run(host, 6, accept=4)
    assert {item.trajectory.trial_id for item in rollout.cut} == {"s-2", "s-5"}
    assert len(rollout.accepted) == 4 and rollout.launched == 6
    assert rollout.rollout_s < 5.0 and host.live == {}


def test_with_tail_wait_nothing_is_cut_and_the_late_ones_are_left_out():
    host = Host(lambda trial: 0.2 if trial.sampling_seed == 0 else 0.01)
    rollout = run(host, 4, accept=3, tail="wait")
    assert [item.trajectory.trial_id for item in rollout.surplus] == ["s-0"]
    assert len(rollout.accepted) == 3 and rollout.cut == []


def test_no_more_than_max_live_trials_are_alive():
    host = Host(lambda trial: 0.01)
    rollout = run(host, 20, max_live=3)
    assert host.peak == 3 and len(rollout.accepted) == 20


def test_trials_not_yet_launched_when_the_batch_is_full_are_never_launched():
    host = Host(lambda trial: 0.01)
    rollout = run(host, 10, accept=2, max_live=2)
    assert rollout.launched == len(host.launched) < 10


def test_a_retryable_failure_is_launched_again_under_its_own_name_and_both_are_counted():
    broken = Failure(Boundary.SANDBOX, "BoxDied", "gone", retryable=True)

    def outcome(trial):
        return result(trial, stop=StopReason.FAILED, failure=broken) if trial.attempt == 0 else result(trial)

    rollout = run(Host(lambda trial: 0.01, outcome=outcome), 3, max_retries=1)
    assert rollout.launched == 6 and len(rollout.failed) == 3 and rollout.retried == 3
    assert sorted(item.trajectory.trial_id for item in rollout.accepted) == ["s-0~1", "s-1~1", "s-2~1"]


def test_retries_are_limited_and_failures_never_enter_the_batch():
    broken = Failure(Boundary.ENGINE, "EngineDead", "gone", retryable=True)
    host = Host(
        lambda trial: 0.01, outcome=lambda trial: result(trial, stop=StopReason.FAILED, failure=broken)
    )
    rollout = run(host, 2, max_retries=2)
    assert rollout.launched == len(rollout.failed) == 6 and rollout.accepted == []


def test_quarantined_trials_are_held_back():
    host = Host(lambda trial: 0.01, outcome=lambda trial: result(trial, quarantined=trial.sampling_seed == 1))
    rollout = run(host, 3)
    assert [item.trajectory.trial_id for item in rollout.quarantined] == ["s-1"] and len(
        rollout.accepted
    ) == 2


def test_a_graded_trial_without_a_sampled_token_is_no_quarantined_one():
    host = Host(
        lambda trial: 0.01,
        outcome=lambda trial: result(trial, rows=() if trial.sampling_seed else ("a row",)),
    )
    rollout = run(host, 2)
    assert [item.trajectory.trial_id for item in rollout.empty] == ["s-1"] and rollout.quarantined == []
    assert rollout.outcomes() == {"s-0": "accepted", "s-1": "empty"}


def test_missing_routes_end_the_step_and_are_not_tried_again():
    def outcome(trial):
        raise MissingRoutes("short")

    host = Host(lambda trial: 0.01, outcome=outcome)
    with pytest.raises(MissingRoutes):
        run(host, 3, max_live=1, max_retries=5)
    assert host.launched == ["s-0"]


def test_when_a_launch_raises_the_others_are_cut_and_the_error_passes_through():
    def outcome(trial):
        raise RuntimeError("host lost")

    host = Host(lambda trial: 0.01 if trial.sampling_seed == 0 else 60.0, outcome=outcome)
    with pytest.raises(RuntimeError, match="host lost"):
        run(host, 3)
    assert host.live == {}


def test_each_late_trial_is_cut_once_however_many_finish_after_the_batch_is_full():
    class Slow(Host):
        """Cut trials take their time, one after the other."""

        cuts: list

        async def cut(self, trial_ids):
            self.cuts.append(list(trial_ids))
            for n, trial_id in enumerate(trial_ids):
                asyncio.get_running_loop().call_later(0.05 * (n + 1), self.live[trial_id].set)

    host = Slow(lambda trial: 0.01 if trial.sampling_seed < 2 else 60.0)
    host.cuts = []
    rollout = run(host, 6, accept=2)
    assert len(rollout.cut) == 4 and host.cuts == [["s-2", "s-3", "s-4", "s-5"]]


def test_a_host_that_never_answers_a_cut_does_not_hold_up_the_error():
    class Deaf(Host):
        async def cut(self, trial_ids):
            await asyncio.Event().wait()

    def outcome(trial):
        raise RuntimeError("capture missing")

    host = Deaf(lambda trial: 0.01 if trial.sampling_seed == 0 else 60.0, outcome=outcome)
    with pytest.raises(RuntimeError, match="capture missing"):
        run(host, 3, cleanup_deadline_s=0.3)
    assert host.live == {}, "what was left behind is cancelled"


def test_a_cut_that_fails_does_not_replace_the_error():
    class Broken(Host):
        async def cut(self, trial_ids):
            raise ConnectionError("the host is gone")

    def outcome(trial):
        raise RuntimeError("capture missing")

    host = Broken(lambda trial: 0.01 if trial.sampling_seed == 0 else 0.2, outcome=outcome)
    with pytest.raises(RuntimeError, match="capture missing"):
        run(host, 3, cleanup_deadline_s=5.0)


def grouped(seconds, *, size, accept, outcome=lambda trial: result(trial)):
    """Six trials in groups of `size`, side by side."""
    host = Host(seconds, outcome=outcome)
    specs = [replace(spec(i), group=i // size) for i in range(6)]
    return asyncio.run(
        skim(specs, launch=host.launch, cut=host.cut, accept=accept, max_live=6, group_size=size)
    )


def ids(results):
    return sorted(item.trajectory.trial_id for item in results)


def test_a_group_enters_the_batch_with_its_last_member_and_not_before():
    # One trial never ends by itself; its partner ends early and waits in vain.
    rollout = grouped(lambda trial: 60.0 if trial.sampling_seed == 3 else 0.05, size=2, accept=4)
    assert ids(rollout.accepted) == ["s-0", "s-1", "s-4", "s-5"]
    assert ids(rollout.cut) == ["s-3"] and ids(rollout.surplus) == ["s-2"]
    assert {rollout.groups[name] for name in ids(rollout.accepted)} == {0, 2}
    assert all(began < ended for began, ended in rollout.spans_s.values())


def test_a_group_that_lost_a_member_is_left_out_whole():
    broken = Failure(Boundary.TASK, "Bad", "broken")
    rollout = grouped(
        lambda trial: 0.02,
        size=3,
        accept=6,
        outcome=lambda trial: (
            result(trial, stop=StopReason.FAILED, failure=broken)
            if trial.sampling_seed == 1
            else result(trial)
        ),
    )
    assert ids(rollout.accepted) == ["s-3", "s-4", "s-5"]
    assert ids(rollout.failed) == ["s-1"] and ids(rollout.surplus) == ["s-0", "s-2"]


def test_a_second_retry_keeps_one_stem():
    once = next_attempt(spec(0))
    assert (once.trial_id, next_attempt(once).trial_id) == ("s-0~1", "s-0~2")


def test_the_pacer_spreads_callers_at_its_rate():
    now = [100.0]
    pacer = Pacer(4.0, clock=lambda: now[0])
    assert [pacer.reserve() for _ in range(4)] == [0.0, 0.25, 0.5, 0.75]
    now[0] = 110.0
    assert [pacer.reserve() for _ in range(2)] == [0.0, 0.25]


def test_the_pacer_takes_rates_below_one_and_bursts():
    pacer = Pacer(0.1, clock=lambda: 0.0)
    assert [pacer.reserve() for _ in range(3)] == [0.0, 10.0, 20.0]
    burst = Pacer(1.0, burst=3, clock=lambda: 50.0)
    assert [burst.reserve() for _ in range(5)] == [0.0, 0.0, 0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="rate_per_s=0"):
        Pacer(0)
