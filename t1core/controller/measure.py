"""Metrics of a step: what became of its trials, how faithful their tokens are, where time and CPU went."""

import contextlib
import functools
import operator
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import psutil

from t1core.cluster import Publication
from t1core.cluster.crew import CpuSeconds
from t1core.controller.conduct import measure_conduct
from t1core.records import Batch, Trajectory
from t1core.rollout.skim import StepRollout
from t1core.tito import UnresolvedRetry, audit

UNRESOLVED = UnresolvedRetry.__name__


class StepClock:
    """Wall time of a step's phases and CPU seconds since its start."""

    def __init__(self, cpu: CpuSeconds) -> None:
        self.publication: Publication | None = None
        self._cpu = cpu
        self._driver_cpu_s = time.process_time()
        self._started = time.monotonic()
        self._phases_s: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._phases_s[name] = time.monotonic() - began

    def metrics(self, cpu: CpuSeconds) -> dict[str, float]:
        """time/*, cpu/* and the driver's memory of the iteration that ends now."""
        metrics = {f"time/{name}_s": seconds for name, seconds in self._phases_s.items()}
        metrics["time/step_s"] = time.monotonic() - self._started
        if self.publication is not None:
            published = self.publication
            metrics |= {
                "time/publish_s": (
                    published.quiesce_s + published.transfer_s + published.verify_s + published.resume_s
                ),
                "time/quiesce_s": published.quiesce_s,
                "time/transfer_s": published.transfer_s,
                "time/verify_s": published.verify_s,
                "time/resume_s": published.resume_s,
            }
        metrics |= {
            "cpu/generate_s": cpu.generate - self._cpu.generate,
            "cpu/box_s": cpu.box - self._cpu.box,
            "cpu/train_s": cpu.train - self._cpu.train,
            "cpu/driver_s": time.process_time() - self._driver_cpu_s,
            "memory/driver_mb": psutil.Process().memory_info().rss / 2**20,
        }
        return metrics


def measure_rollout(rollout: StepRollout, batch: Batch, *, is_reencoded: bool = False) -> dict[str, float]:
    """reward/*, rollout/*, tito/* and routing/* of one step. Means are over accepted trials. Drift stops the run,
    unless rows were re-encoded on purpose."""
    accepted = [item.trajectory for item in rollout.accepted]
    grades = [trajectory.grade for trajectory in accepted if trajectory.grade is not None]
    every = [item.trajectory for item in rollout.results()]
    rewards = np.array([grade.reward for grade in grades], dtype=np.float64)
    turns = [turn for trajectory in accepted for turn in trajectory.turns if not turn.is_summary]
    sampled = [sum(len(call.completion_token_ids) for call in trajectory.calls) for trajectory in accepted]
    metrics: dict[str, float] = {
        "reward/mean": rewards.mean(),
        "reward/std": rewards.std(),
        "reward/max": rewards.max(),
        "reward/trained_mean": batch.rewards.mean(),
        "reward/solved_frac": np.mean([grade.solved for grade in grades]),
        "reward/passed_frac": np.mean([grade.passed / grade.total for grade in grades]),
        "rollout/launched": rollout.launched,
        "rollout/carried": rollout.carried,
        "rollout/continued": len(rollout.continued),
        "rollout/stale": rollout.stale,
        "rollout/accepted": len(rollout.accepted),
        "rollout/surplus": len(rollout.surplus),
        "rollout/quarantined": len(rollout.quarantined),
        "rollout/empty": len(rollout.empty),
        "rollout/cut": len(rollout.cut),
        "rollout/failed": len(rollout.failed),
        "rollout/retried": rollout.retried,
        "rollout/unresolved": sum(t.failure is not None and t.failure.kind == UNRESOLVED for t in every),
        "rollout/distinct_tasks": len({trajectory.task_id for trajectory in accepted}),
        "rollout/turns_mean": len(turns) / len(accepted),
        "rollout/response_tokens_mean": np.mean(sampled),
        "rollout/prompt_tokens_mean": (batch.num_tokens - sum(sampled)) / len(accepted),
        "rollout/parse_error_frac": np.mean([turn.is_parse_error for turn in turns]),
        "rollout/generated_tokens_per_s": sum(sampled) / rollout.rollout_s,
        "routing/rows": len(batch.routed_experts),
        "routing/missing": sum(
            row.rollout_routed_experts is None for item in rollout.accepted for row in item.rows
        ),
    }
    metrics |= measure_conduct(rollout.accepted)
    metrics |= _group_metrics(rollout, batch)
    sources = [t.grade.source for t in every if t.grade is not None]
    metrics |= _counts("reward/source", sources)
    metrics |= {f"reward/source_frac/{s}": n / len(sources) for s, n in sorted(Counter(sources).items())}
    metrics |= _counts("rollout/stop", [t.stop_reason for t in every])
    metrics |= _counts("rollout/failure", [t.failure.boundary for t in every if t.failure is not None])
    for outcome, items in rollout.by_outcome().items():
        for family, count in sorted(Counter(item.trajectory.family for item in items).items()):
            metrics[f"rollout/family/{family}/{outcome}"] = count
    going_on = Counter(trial.spec.task.family for trial in rollout.continued)
    for family, continued in sorted(going_on.items()):
        metrics[f"rollout/family/{family}/continued"] = continued
    for family, launched in sorted((Counter(t.family for t in every) + going_on).items()):
        kept = [t.reward for t in accepted if t.family == family]
        metrics[f"rollout/family/{family}/launched"] = launched
        metrics[f"rollout/family/{family}/accepted"] = len(kept)
        if kept:
            metrics[f"rollout/family/{family}/reward_mean"] = float(np.mean(kept))
    return {
        name: float(value) for name, value in (metrics | _audit(rollout, is_reencoded=is_reencoded)).items()
    }


def _group_metrics(rollout: StepRollout, batch: Batch) -> dict[str, float]:
    """Of samples of one task: how many groups tell nothing, and how long finished members waited for their slowest."""
    members: dict[int, list[Trajectory]] = {}
    for item in rollout.accepted:
        group = rollout.groups.get(item.trajectory.trial_id)
        if group is not None:
            members.setdefault(group, []).append(item.trajectory)
    if not members:
        return {}
    idle, busy = group_waiting(
        [rollout.spans_s[trajectory.trial_id] for trajectory in group] for group in members.values()
    )
    trained = dict(zip(batch.rollout_ids, batch.rewards.tolist(), strict=True))
    is_flat = [len({trained[trajectory.trial_id] for trajectory in group}) == 1 for group in members.values()]
    return {
        "reward/zero_variance_group_frac": float(np.mean(is_flat)),
        "rollout/groups": len(members),
        "rollout/group_idle_s": idle,
        "rollout/group_idle_frac": idle / (idle + busy),
    }


def group_waiting(groups: Iterable[Sequence[tuple[float, float]]]) -> tuple[float, float]:
    """(seconds that trials waited, done, for the slowest of their group; seconds that they took), over all trials. A
    group is when each of its trials was launched and when it ended."""
    idle = busy = 0.0
    for spans in groups:
        last = max(ended for _, ended in spans)
        idle += sum(last - ended for _, ended in spans)
        busy += sum(ended - launched for launched, ended in spans)
    return idle, busy


def _counts(prefix: str, values: list[str]) -> dict[str, float]:
    return {f"{prefix}/{value}": float(count) for value, count in sorted(Counter(values).items())}


def _audit(rollout: StepRollout, *, is_reencoded: bool) -> dict[str, float]:
    """Independent audit of every row against what the engine sampled; anything found stops the run, unless
    `is_reencoded`."""
    audits = [audit(item.trajectory.calls, item.rows) for item in rollout.accepted]
    total = functools.reduce(operator.add, audits)
    is_clean = not total.problems and total.drift_frac == 0.0
    assert is_clean or is_reencoded, f"the token audit found {total.problems[:3]}"
    positions = total.num_aligned + total.num_retokenised + total.num_placeholder
    fractions = {f"tito/relation/{relation}": share for relation, share in total.relation_fracs.items()}
    return fractions | {
        "tito/delivered_token_frac": total.delivered_token_frac,
        "tito/drift_frac": total.drift_frac,
        "tito/aligned_frac": total.num_aligned / positions,
        "tito/retokenised_frac": total.num_retokenised / positions,
        "tito/placeholder_frac": total.num_placeholder / positions,
    }
