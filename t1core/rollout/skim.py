"""Skim: launch more trials than a step trains on, keep the first to finish, deal with the tail at once.

    specs --launch (max_live at a time)--> live trials --finish--> accepted | failed (retried within limits) | surplus
                                                     `--accept reached--> tail: cut now, or wait and leave out

Every launch ends in exactly one of these; the sum is asserted, and each is counted by family:
- accepted: in the batch.
- surplus: graded after the batch was full; left out by its finishing time alone.
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
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from t1core.records import StopReason
from t1core.rollout.trial import TrialResult, TrialSpec

_log = logging.getLogger(__name__)


@dataclass
class StepRollout:
    """The trials of one step, by what became of them. `rollout_s` is wall time.

    `groups` has the group of each finished trial that belongs to one, `spans_s` when each finished trial was launched
    and when it ended, in seconds from the step's start; both by trial id.
    """

    launched: int = 0
    accepted: list[TrialResult] = field(default_factory=list)
    surplus: list[TrialResult] = field(
        default_factory=list
    )  # finished after the batch was full, or without its group
    quarantined: list[TrialResult] = field(default_factory=list)
    empty: list[TrialResult] = field(default_factory=list)  # graded without a row
    cut: list[TrialResult] = field(default_factory=list)
    failed: list[TrialResult] = field(default_factory=list)
    retried: int = 0  # launches among them that repeat a failed one
    rollout_s: float = 0.0
    groups: dict[str, int] = field(default_factory=dict)
    spans_s: dict[str, tuple[float, float]] = field(default_factory=dict)

    def by_outcome(self) -> dict[str, list[TrialResult]]:
        """The launched trials, each once, by what became of them."""
        return {
            "accepted": self.accepted,
            "surplus": self.surplus,
            "quarantined": self.quarantined,
            "empty": self.empty,
            "cut": self.cut,
            "failed": self.failed,
        }

    def outcomes(self) -> dict[str, str]:
        """What became of each launched trial, by id."""
        return {item.trajectory.trial_id: kind for kind, items in self.by_outcome().items() for item in items}

    def results(self) -> list[TrialResult]:
        """Every launched trial once."""
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
    max_retries: int = 0,
    cleanup_deadline_s: float = 120.0,
    on_progress: Callable[[StepRollout, int], None] = lambda rollout, live: None,
) -> StepRollout:
    """Run one step's trials. Raises whatever a launch raises (a missing capture, a dead host), after cutting the rest.

    That clean-up takes at most `cleanup_deadline_s`; what does not end within it is left behind, and logged. A
    group has `group_size` trials; `accept` counts trials and is a multiple of it.
    """
    began = time.monotonic()
    rollout = StepRollout()
    waiting = deque(specs)
    live: dict[asyncio.Future[TrialResult], TrialSpec] = {}
    already_cut: set[str] = set()
    held = _Groups(rollout, size=group_size, accept=accept)
    launched_s: dict[str, float] = {}
    try:
        while live or (waiting and len(rollout.accepted) < accept):
            while waiting and len(live) < max_live and len(rollout.accepted) < accept:
                spec = waiting.popleft()
                live[asyncio.ensure_future(launch(spec))] = spec
                launched_s[spec.trial_id] = time.monotonic() - began
                rollout.launched += 1
                rollout.retried += spec.attempt > 0
            done, _ = await asyncio.wait(live, return_when=asyncio.FIRST_COMPLETED)
            for future in sorted(done, key=lambda item: live[item].trial_id):
                spec = live.pop(future)
                rollout.spans_s[spec.trial_id] = launched_s[spec.trial_id], time.monotonic() - began
                retry = _sort(rollout, future.result(), held, spec)
                if retry and spec.attempt < max_retries:
                    waiting.append(next_attempt(spec))
            on_progress(rollout, len(live))
            if len(rollout.accepted) >= accept and tail == "cut":
                late = [spec.trial_id for spec in live.values() if spec.trial_id not in already_cut]
                if late:
                    already_cut.update(late)
                    await cut(late)
    except BaseException:
        late = [spec.trial_id for spec in live.values() if spec.trial_id not in already_cut]
        ending = {*live, asyncio.ensure_future(cut(late))} if late else set(live)
        await _end(ending, within_s=cleanup_deadline_s)
        raise
    held.release()
    rollout.rollout_s = time.monotonic() - began
    assert len(rollout.results()) == rollout.launched, (
        f"{rollout.launched} trials launched, {len(rollout.results())} accounted for"
    )
    return rollout


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
    stem = spec.trial_id.removesuffix(f"~{spec.attempt}")
    return replace(spec, attempt=spec.attempt + 1, trial_id=f"{stem}~{spec.attempt + 1}")


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


def _sort(rollout: StepRollout, result: TrialResult, held: _Groups, spec: TrialSpec) -> bool:
    """File one result; True when it should be retried."""
    trajectory = result.trajectory
    if trajectory.stop_reason is StopReason.CUT:
        rollout.cut.append(result)
    elif trajectory.failure is not None:
        rollout.failed.append(result)
        return trajectory.failure.retryable
    elif trajectory.grade is not None and trajectory.grade.quarantined:
        rollout.quarantined.append(result)
    elif not result.rows:
        rollout.empty.append(result)
    else:
        held.add(result, spec)
    return False
