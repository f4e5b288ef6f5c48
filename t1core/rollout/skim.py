"""Skim: launch more trials than a step trains on, keep the first to finish, deal with the tail at once.

    specs --launch (max_live at a time)--> live trials --finish--> accepted | failed (retried within limits) | surplus
    carried --------------------------------^        `--accept reached--> tail: cut now, wait and leave out, or continue

With tail `continue` the tail is not dealt with here: those trials and their boxes live on, and are handed to the next
step as its `carried` ones, which is where they are counted. They keep their clocks and budgets: nothing is launched
twice. What is too old to be trained on (`stale`) is cut as the step begins.

Every trial that ends does so in exactly one of these; the sum is asserted, and each is counted by family:
- accepted: in the batch.
- surplus: graded after the batch was full, or too late to be trained on; left out by its finishing time alone.
- cut: cancelled as the step's tail.
- quarantined: graded, and suspicious. Left out and listed: neither its reward nor a 0 is learnt from.
- empty: graded, but its first prompt did not fit or nothing was sampled. There is no token to learn from.
- failed: something other than the model broke. It has no reward and is never scored 0. An engine, a sandbox or a
  verifier that broke is tried again, at most `max_retries` times under a new id, each launch counted; a bad task, a
  fault of ours, or calls whose order could not be resolved are not.
Another task's trial takes the place of each that is left out, as far as the step's surplus of launches goes. Missing or
short routes are none of these: they end the step, since leaving the trial out would let only those pass that were
captured well.

Samples of one task are kept together: a group enters the batch when its last member has finished, or not at all.

In launch order (`in_launch_order`), all trials are awaited and the first that are usable in that order are accepted, so
that what is in the batch does not depend on who was faster.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from t1core.records import StopReason
from t1core.rollout.trial import TrialResult, TrialSpec

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LiveTrial:
    """A launched trial. `since`: seconds of the event loop's clock. `version`: what the engine held at its launch, so
    none of its tokens is older."""

    spec: TrialSpec
    since: float
    version: int
    future: asyncio.Future[TrialResult]


@dataclass
class StepRollout:
    """The trials of one step, by what became of them. `rollout_s` is wall time.

    `groups` has the group of each finished trial that belongs to one, `spans_s` when each finished trial was launched
    and when it ended, in seconds from the step's start (negative for what an earlier step launched); both by trial id.
    """

    launched: int = 0
    carried: int = 0  # trials of earlier steps that went on in this one
    accepted: list[TrialResult] = field(default_factory=list)
    # finished after the batch was full, or without its group
    surplus: list[TrialResult] = field(default_factory=list)
    quarantined: list[TrialResult] = field(default_factory=list)
    empty: list[TrialResult] = field(default_factory=list)  # graded without a row
    cut: list[TrialResult] = field(default_factory=list)
    failed: list[TrialResult] = field(default_factory=list)
    continued: list[LiveTrial] = field(default_factory=list)  # still alive: the next step's to count
    retried: int = 0  # launches among them that repeat a failed one
    stale: int = 0  # cut as the step began, since what they had sampled was too old
    rollout_s: float = 0.0
    groups: dict[str, int] = field(default_factory=dict)
    spans_s: dict[str, tuple[float, float]] = field(default_factory=dict)

    def by_outcome(self) -> dict[str, list[TrialResult]]:
        """The trials that ended, each once, by what became of them."""
        return {
            "accepted": self.accepted,
            "surplus": self.surplus,
            "quarantined": self.quarantined,
            "empty": self.empty,
            "cut": self.cut,
            "failed": self.failed,
        }

    def outcomes(self) -> dict[str, str]:
        """What became of each trial that ended, by id."""
        return {item.trajectory.trial_id: kind for kind, items in self.by_outcome().items() for item in items}

    def results(self) -> list[TrialResult]:
        """Every trial that ended, once."""
        return [item for items in self.by_outcome().values() for item in items]


async def skim(
    specs: Sequence[TrialSpec],
    *,
    launch: Callable[[TrialSpec], Awaitable[TrialResult]],
    cut: Callable[[list[str]], Awaitable[None]],
    accept: int,
    max_live: int,
    group_size: int = 1,
    tail: str = "cut",
    in_launch_order: bool = False,
    max_retries: int = 0,
    cleanup_deadline_s: float = 120.0,
    step: int | None = None,
    version: Callable[[], int] = lambda: 0,
    carried: Sequence[LiveTrial] = (),
    stale: Collection[str] = (),
    on_progress: Callable[[StepRollout, int], None] = lambda rollout, live: None,
) -> StepRollout:
    """Run one step's trials. Raises whatever a launch raises (a missing capture, a dead host), after cutting the rest.

    That clean-up takes at most `cleanup_deadline_s`; what does not end within it is left behind, and logged. A
    group has `group_size` trials; `accept` counts trials and is a multiple of it. `carried` trials are alive already;
    those with an id in `stale` are cut at once, and left out also where they end before that. Finished trials are filed
    under `step`, whichever launched them. `version` tells what the engine holds.
    """
    assert not in_launch_order or (tail == "wait" and not carried), "in launch order, all trials are awaited"
    assert not carried or group_size == 1, "groups are kept whole within a step"
    now = asyncio.get_running_loop().time
    began = now()
    rollout = StepRollout(carried=len(carried))
    waiting = deque(specs)
    finished = _Finished()
    live = {trial.future: trial for trial in carried}
    for future in live:
        finished.watch(future)
    already_cut: set[str] = set()
    is_tail_cut = False
    held = _Groups(rollout, size=group_size, accept=accept)
    order: dict[str, int] = {}
    ended: list[tuple[TrialResult, TrialSpec]] = []
    try:
        too_old = [trial for trial in carried if trial.spec.trial_id in stale]
        rollout.stale = len(too_old)
        already_cut.update(trial.spec.trial_id for trial in too_old)
        if alive := [trial.spec.trial_id for trial in too_old if not trial.future.done()]:
            await cut(alive)
        while (live and not _is_over(rollout, accept, tail)) or (waiting and len(rollout.accepted) < accept):
            while waiting and len(live) < max_live and len(rollout.accepted) < accept:
                spec = waiting.popleft()
                future = asyncio.ensure_future(launch(spec))
                finished.watch(future)
                live[future] = LiveTrial(spec, now(), version(), future)
                order.setdefault(_stem(spec), len(order))
                rollout.launched += 1
                rollout.retried += spec.attempt > 0
            for future in sorted(await finished.take(), key=lambda item: live[item].spec.trial_id):
                trial = live.pop(future)
                spec, result = trial.spec, _filed_under(step, future.result())
                rollout.spans_s[spec.trial_id] = trial.since - began, now() - began
                if in_launch_order:
                    ended.append((result, spec))
                else:
                    _sort(rollout, result, held, spec, is_stale=spec.trial_id in stale)
                failure = result.trajectory.failure
                if failure is not None and failure.retryable and spec.attempt < max_retries:
                    waiting.append(next_attempt(spec))
            on_progress(rollout, len(live))
            if len(rollout.accepted) >= accept and tail == "cut" and not is_tail_cut:
                is_tail_cut = True
                late = [trial.spec.trial_id for trial in live.values()]
                late = [trial_id for trial_id in late if trial_id not in already_cut]
                if late:
                    already_cut.update(late)
                    await cut(late)
    except BaseException:
        late = [trial for trial in live.values() if trial.spec.trial_id not in already_cut]
        await end_trials(list(live.values()), cut=cut, to_cut=late, within_s=cleanup_deadline_s)
        raise
    finally:
        finished.close()
    for result, spec in sorted(ended, key=lambda item: order[_stem(item[1])]):
        _sort(rollout, result, held, spec)
    held.release()
    rollout.continued = list(live.values())
    rollout.rollout_s = now() - began
    num_ended, num_left = len(rollout.results()), len(rollout.continued)
    assert num_ended + num_left == rollout.launched + rollout.carried, (
        f"{rollout.launched} trials launched and {rollout.carried} carried, {num_ended} ended and {num_left} go on"
    )
    return rollout


async def end_trials(
    trials: Sequence[LiveTrial],
    *,
    cut: Callable[[list[str]], Awaitable[None]],
    within_s: float,
    to_cut: Sequence[LiveTrial] | None = None,
) -> None:
    """Cut trials (or only `to_cut` of them: the others were cut before) and wait until all have ended, never longer
    than `within_s` and without an error of its own."""
    ids = [trial.spec.trial_id for trial in (trials if to_cut is None else to_cut)]
    futures = {trial.future for trial in trials}
    await _end({*futures, asyncio.ensure_future(cut(ids))} if ids else futures, within_s=within_s)


def _is_over(rollout: StepRollout, accept: int, tail: str) -> bool:
    return tail == "continue" and len(rollout.accepted) >= accept


def _filed_under(step: int | None, result: TrialResult) -> TrialResult:
    if step is None or result.trajectory.step == step:
        return result
    return replace(result, trajectory=replace(result.trajectory, step=step))


async def _end(ending: set[asyncio.Future], *, within_s: float) -> None:
    """Wait for what has been told to end, never longer than `within_s` and without an error of its own."""
    if not ending:
        return
    try:
        await asyncio.wait(ending, timeout=within_s)
    finally:
        for future in ending:
            if not future.done():
                _log.warning("still not ended after %g s: %r", within_s, future)
                future.cancel()
    for future in ending:
        if future.done() and not future.cancelled() and (error := future.exception()) is not None:
            _log.warning("while ending the other trials: %s: %s", type(error).__name__, error)


def next_attempt(spec: TrialSpec) -> TrialSpec:
    """The same trial once more, under an id of its own."""
    return replace(spec, attempt=spec.attempt + 1, trial_id=f"{_stem(spec)}~{spec.attempt + 1}")


def _stem(spec: TrialSpec) -> str:
    return spec.trial_id.removesuffix(f"~{spec.attempt}")


class _Finished:
    """Watched futures as they finish. asyncio.wait would touch every live one each time that one finishes."""

    def __init__(self) -> None:
        self._watched: set[asyncio.Future] = set()
        self._done: set[asyncio.Future] = set()
        self._some = asyncio.Event()

    def watch(self, future: asyncio.Future) -> None:
        self._watched.add(future)
        future.add_done_callback(self._note)

    async def take(self) -> set[asyncio.Future]:
        """Wait until at least one has finished; each is given once."""
        await self._some.wait()
        self._some.clear()
        taken, self._done = self._done, set()
        return taken

    def close(self) -> None:
        """Forget those that are still running."""
        for future in self._watched:
            future.remove_done_callback(self._note)

    def _note(self, future: asyncio.Future) -> None:
        self._watched.discard(future)
        self._done.add(future)
        self._some.set()


class _Groups:
    """Usable trials whose group is not complete yet. A trial on its own is a group of one."""

    def __init__(self, rollout: StepRollout, *, size: int, accept: int) -> None:
        self._rollout, self._size, self._accept = rollout, size, accept
        self._held: dict[int | str, list[TrialResult]] = {}

    def add(self, result: TrialResult, spec: TrialSpec) -> None:
        rollout = self._rollout
        key: int | str = spec.trial_id
        if spec.group is not None:
            key = rollout.groups[spec.trial_id] = spec.group
        members = self._held.setdefault(key, [])
        members.append(result)
        if len(members) == self._size:
            is_room = len(rollout.accepted) + self._size <= self._accept
            (rollout.accepted if is_room else rollout.surplus).extend(self._held.pop(key))

    def release(self) -> None:
        """At the step's end: members of groups that never became whole."""
        for members in self._held.values():
            self._rollout.surplus.extend(members)
        self._held.clear()


def _sort(
    rollout: StepRollout, result: TrialResult, held: _Groups, spec: TrialSpec, *, is_stale: bool = False
) -> None:
    """File one result."""
    trajectory = result.trajectory
    if trajectory.stop_reason is StopReason.CUT:
        rollout.cut.append(result)
    elif trajectory.failure is not None:
        rollout.failed.append(result)
    elif trajectory.grade is not None and trajectory.grade.quarantined:
        rollout.quarantined.append(result)
    elif not result.rows:
        rollout.empty.append(result)
    elif is_stale:  # it ended before it could be cut
        rollout.surplus.append(result)
    else:
        held.add(result, spec)
