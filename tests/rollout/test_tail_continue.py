"""Tails that live on, and acceptance in launch order: trials that end when told to."""

import asyncio
from dataclasses import replace

import pytest

from t1core.records import Boundary, Failure, Grade, RewardSource, StopReason, Task, Trajectory
from t1core.rollout.skim import LiveTrial, end_trials, skim
from t1core.rollout.trial import TrialResult, TrialSpec

TASK = Task("t", "family", "train", None, "do", ("a",))


class Host:
    """Trials end when `finish` says so; a cut ends one as cut."""

    def __init__(self):
        self.live, self.launched, self.cuts = {}, [], []

    async def launch(self, spec):
        self.launched.append(spec.trial_id)
        ended = self.live[spec.trial_id] = asyncio.get_running_loop().create_future()
        return await ended

    async def cut(self, trial_ids):
        self.cuts.append(trial_ids)
        for trial_id in trial_ids:
            self.finish(trial_id, stop=StopReason.CUT)

    def finish(self, trial_id, *, stop=StopReason.COMPLETED, failure=None):
        graded = stop is StopReason.COMPLETED and failure is None
        grade = Grade(0.5, RewardSource.CTRF, 1, 2, False, ()) if graded else None
        step = int(trial_id[1])
        trajectory = Trajectory(trial_id, "t", "family", "train", 2, step, stop, failure, (), (), grade)
        self.live.pop(trial_id).set_result(TrialResult(trajectory, ("row",) if graded else ()))


def specs(step, n):
    return [TrialSpec(f"s{step}-{i}", TASK, step=step, attempt=0, sampling_seed=i) for i in range(n)]


def ids(results):
    return [item.trajectory.trial_id for item in results]


async def started(host, n):
    async with asyncio.timeout(10):
        while len(host.live) < n:
            await asyncio.sleep(0)


async def one_step(host, step, n, finishing, **options):
    """Launch `n` trials of a step; those in `finishing` then end, one after the other."""
    options = {
        "accept": 2,
        "max_live": 9,
        "tail": "continue",
        "step": step,
        "version": lambda: step,
    } | options
    work = asyncio.ensure_future(skim(specs(step, n), launch=host.launch, cut=host.cut, **options))
    await started(host, n)
    for trial_id in finishing:
        if trial_id in host.live:
            host.finish(trial_id)
            await asyncio.sleep(0.001)
    return await asyncio.wait_for(work, 5)


def test_what_is_not_finished_lives_on_and_is_counted_where_it_ends():
    async def run():
        host = Host()
        first = await one_step(host, 0, 4, ["s0-0", "s0-2"])
        assert ids(first.accepted) == ["s0-0", "s0-2"] and first.cut == []
        assert [trial.spec.trial_id for trial in first.continued] == ["s0-1", "s0-3"]
        assert (first.launched, first.carried) == (4, 0) and set(host.live) == {"s0-1", "s0-3"}
        second = await one_step(host, 1, 2, ["s0-3", "s1-0"], carried=first.continued)
        assert ids(second.accepted) == ["s0-3", "s1-0"] and (second.launched, second.carried) == (2, 2)
        assert [trial.spec.trial_id for trial in second.continued] == ["s0-1", "s1-1"]
        assert [item.trajectory.step for item in second.accepted] == [1, 1]
        began, ended = second.spans_s["s0-3"]
        assert began < 0 < ended, "it was launched before this step"
        assert host.launched.count("s0-3") == 1, "the trial is the same one: nothing is granted twice"
        assert [trial.version for trial in second.continued] == [0, 1]
        await end_trials(second.continued, cut=host.cut, within_s=5)
        assert host.live == {} and host.cuts == [["s0-1", "s1-1"]]

    asyncio.run(run())


def test_a_batch_made_of_carried_trials_alone_launches_nothing_more_than_asked():
    async def run():
        host = Host()
        first = await one_step(host, 0, 4, ["s0-0", "s0-1"])
        host.finish("s0-2")
        host.finish("s0-3")
        second = await one_step(host, 1, 0, [], carried=first.continued)
        assert ids(second.accepted) == ["s0-2", "s0-3"] and second.launched == 0

    asyncio.run(run())


def test_what_is_too_old_is_cut_as_the_step_begins_and_another_takes_its_place():
    async def run():
        host = Host()
        first = await one_step(host, 0, 3, ["s0-0", "s0-1"])
        second = await one_step(
            host, 2, 2, ["s2-0", "s2-1"], carried=first.continued, stale={"s0-2"}
        )  # fmt: skip
        assert ids(second.cut) == ["s0-2"] and second.stale == 1 and host.cuts == [["s0-2"]]
        assert ids(second.accepted) == ["s2-0", "s2-1"] and second.continued == []

    asyncio.run(run())


def test_what_ended_before_it_could_be_cut_is_too_old_all_the_same():
    async def run():
        host = Host()
        first = await one_step(host, 0, 3, ["s0-0", "s0-1"])
        host.finish("s0-2")
        await asyncio.sleep(0.001)
        second = await one_step(
            host, 2, 2, ["s2-0", "s2-1"], carried=first.continued, stale={"s0-2"}
        )  # fmt: skip
        assert ids(second.accepted) == ["s2-0", "s2-1"] and ids(second.surplus) == ["s0-2"]
        assert second.stale == 1 and host.cuts == []

    asyncio.run(run())


def test_a_carried_trial_that_breaks_ends_the_next_step_and_the_others_are_cut():
    async def run():
        host = Host()
        first = await one_step(host, 0, 4, ["s0-0", "s0-1"])
        host.live.pop("s0-2").set_exception(RuntimeError("host lost"))
        with pytest.raises(RuntimeError, match="host lost"):
            await one_step(host, 1, 0, [], carried=first.continued)
        assert host.live == {}

    asyncio.run(run())


@pytest.mark.parametrize("finishing", [["s0-0", "s0-1", "s0-2"], ["s0-2", "s0-1", "s0-0"]])
def test_in_launch_order_it_does_not_matter_who_is_faster(finishing):
    rollout = asyncio.run(one_step(Host(), 0, 3, finishing, tail="wait", in_launch_order=True))
    assert ids(rollout.accepted) == ["s0-0", "s0-1"] and ids(rollout.surplus) == ["s0-2"]


def test_in_launch_order_a_retry_takes_the_place_of_what_it_repeats():
    broken = Failure(Boundary.SANDBOX, "BoxDied", "gone", retryable=True)

    async def run():
        host = Host()
        work = asyncio.ensure_future(
            skim(
                specs(0, 3), launch=host.launch, cut=host.cut, accept=2, max_live=3, tail="wait",
                in_launch_order=True, max_retries=1,
            )
        )  # fmt: skip
        await started(host, 3)
        host.finish("s0-0", failure=broken, stop=StopReason.FAILED)
        await started(host, 3)
        for trial_id in ("s0-2", "s0-1", "s0-0~1"):
            host.finish(trial_id)
        return await work

    rollout = asyncio.run(run())
    assert ids(rollout.accepted) == ["s0-0~1", "s0-1"] and ids(rollout.failed) == ["s0-0"]


def test_groups_cannot_be_carried():
    host = Host()
    carried = [LiveTrial(replace(specs(0, 1)[0], group=0), 0.0, 0, None)]
    with pytest.raises(AssertionError, match="whole within a step"):
        asyncio.run(
            skim([], launch=host.launch, cut=host.cut, accept=2, max_live=2, carried=carried, group_size=2)
        )
