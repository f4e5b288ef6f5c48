"""Frames written by hand, with the columns that a run's frames have."""

import pandas as pd


def trials_frame(*rows: dict) -> pd.DataFrame:
    """Each row over an accepted training trial of two turns that passed 1 of 2 tests."""
    default = {
        "trial_id": "",
        "task_id": "copy-0",
        "family": "copy",
        "split": "train",
        "kind": "train",
        "step": 0,
        "outcome": "accepted",
        "stop_reason": "completed",
        "reward": 0.05,
        "passed": 1,
        "total": 2,
        "solved": False,
        "num_tests": 2,
        "num_turns": 2,
        "num_parse_errors": 0,
        "sampled_tokens": 10,
    }
    return pd.DataFrame([default | {"trial_id": f"t{number}"} | row for number, row in enumerate(rows)])


def metrics_frame(steps: int = 4, **changes: list[float]) -> pd.DataFrame:
    """A training frame that breaks no rule: two accepted trials a step, critic-only steps none."""
    columns = {
        "train/tokens": [14.0] * steps,
        "routing/rows": [12.0] * steps,
        "routing/missing": [0.0] * steps,
        "tito/drift_frac": [0.0] * steps,
        "tito/delivered_token_frac": [1.0] * steps,
        "logprob_gap/nonfinite": [0.0] * steps,
        "staleness/mean": [0.0] + [1.0] * (steps - 1),
        "staleness/max": [0.0] + [1.0] * (steps - 1),
        "rollout/launched": [3.0] * steps,
        "rollout/accepted": [2.0] * steps,
        "rollout/cut": [1.0] * steps,
        "critic/explained_variance": [0.1] * steps,
        "reward/std": [0.2] * steps,
    }
    named = {name.replace("__", "/"): values for name, values in changes.items()}
    return pd.DataFrame(columns | named, index=pd.RangeIndex(steps, name="step"))


def trials_of(steps: int = 4) -> pd.DataFrame:
    """The trials that `metrics_frame` counts."""
    return trials_frame(
        *(
            {"step": step, "outcome": outcome}
            for step in range(steps)
            for outcome in ("accepted", "accepted", "cut")
        )
    )
