"""What must hold in every run, checked from what it stored: the last cell of a campaign's notebook."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from t1core.analysis.critic import explained_variance
from t1core.analysis.heldout import heldout_gain
from t1core.analysis.learning import quarter_gain

_FATES = ("accepted", "surplus", "quarantined", "empty", "cut", "failed")


@dataclass(frozen=True)
class Check:
    """One claim about a run, whether it holds, and the numbers that say so."""

    claim: str
    holds: bool
    evidence: str


def check_run(
    metrics: pd.DataFrame,
    *,
    trials: pd.DataFrame,
    num_critic_only_steps: int,
    has_critic: bool = True,
    max_staleness: int = 1,
    publish_every: int = 1,
    is_in_turn: bool = False,
    is_reencoded: bool = False,
) -> list[Check]:
    """The checks of one run. `metrics` is the wide training frame, `trials` every stored trial; `check_settings` takes
    the rest from its configuration. A run that trains re-encoded answers on purpose is not held to token fidelity."""
    trained = metrics[metrics["train/tokens"].notna()] if "train/tokens" in metrics else metrics.iloc[:0]
    checks = [Check("the run trained", len(trained) > 0, f"{len(trained)} steps trained")]
    if not len(trained):
        return checks
    # A step without a trainable token takes no optimiser step, and what only such a step defines is NaN there.
    stepped = trained[trained["train/skipped"] != 1.0] if "train/skipped" in trained else trained
    return [
        *checks,
        *([] if is_reencoded else _token_fidelity(trained)),
        _constant(trained, "routing/missing", 0.0, "no training row lacks its routes"),
        _constant(stepped, "logprob_gap/nonfinite", 0.0, "every loss token has a finite log-prob"),
        _routing_rows(trained),
        _staleness(stepped, num_critic_only_steps, publish_every=publish_every, is_in_turn=is_in_turn)
        if max_staleness == 1
        else _bounded(stepped, max_staleness),
        _accounting(trained, trials),
        *([_explained_variance(stepped)] if has_critic else []),
    ]


def check_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What `check_run` needs of a run's resolved configuration, also of one that an earlier version wrote."""
    train, rollout = config["train"], config.get("rollout", {})
    return {
        "num_critic_only_steps": train["num_critic_only_steps"],
        "has_critic": train.get("advantage", "gae") == "gae",
        "max_staleness": rollout.get("max_staleness", 1),
        "publish_every": rollout.get("publish_every", 1),
        "is_in_turn": rollout.get("mode") == "sync",
        "is_reencoded": rollout.get("token_fidelity") == "reencoded",
    }


def _token_fidelity(trained: pd.DataFrame) -> list[Check]:
    delivered = "every sampled token of a trained trial got a loss"
    return [
        _constant(trained, "tito/drift_frac", 0.0, "sampled tokens are the trained tokens (drift exactly 0)"),
        _constant(trained, "tito/delivered_token_frac", 1.0, delivered),
    ]


def check_learning(metrics: pd.DataFrame, *, trials: pd.DataFrame, has_critic: bool = True) -> list[Check]:
    """What a run that learns shows; a sound run may fail these. EV is of the last quarter of steps."""
    gain = quarter_gain(trials).gain
    claim = "reward of the last quarter of steps is above the first, interval above zero"
    checks = [Check(claim, gain.low > 0, str(gain))]
    if has_critic:
        checks += _critic_checks(explained_variance(metrics, trials=trials))
    held_out = heldout_gain(trials).set_index("split")
    if "heldout" in held_out.index:
        row = held_out.loc["heldout"]
        evidence = f"{row['solved_before']:.1%} to {row['solved_after']:.1%} of {row['tasks']:.0f} tasks"
        checks.append(
            Check("held-out tasks are solved more often, by 10 points", row["solved_gain"] >= 0.1, evidence)
        )
    return checks


def _critic_checks(variance: pd.DataFrame) -> list[Check]:
    last = variance.tail(max(1, len(variance) // 4))
    critic, baseline = last["critic"].mean(), last["num_tests_baseline"].mean()
    lowest = variance["critic"].min()
    return [
        Check("explained variance ends above 0.3", critic > 0.3, f"{critic:.2f}"),
        Check(
            "and above a predictor that knows only the number of tests",
            critic > baseline,
            f"{critic:.2f} against {baseline:.2f}",
        ),
        Check("and is never below -1", lowest >= -1, f"lowest {lowest:.2f}"),
    ]


def say(checks: Sequence[Check], *, yes: str = "yes", no: str = "no") -> None:
    """Print a line a check, without failing."""
    for check in checks:
        print(f"{yes if check.holds else no:<6}  {check.claim}: {check.evidence}")


def assert_holds(checks: Sequence[Check]) -> None:
    """Print every check; AssertionError naming those that don't hold."""
    say(checks, yes="holds", no="BROKEN")
    broken = [check for check in checks if not check.holds]
    assert not broken, "; ".join(f"{check.claim}: {check.evidence}" for check in broken)


def _constant(metrics: pd.DataFrame, name: str, expected: float, claim: str) -> Check:
    if name not in metrics:
        return Check(claim, False, f"{name} was not recorded")
    wrong = metrics.index[~(metrics[name] == expected)]
    return Check(claim, not len(wrong), _where(wrong, len(metrics), name, f"{expected:g}"))


def _routing_rows(metrics: pd.DataFrame) -> Check:
    """Each training row has one route fewer than tokens; with one row a trial, rows are accepted trials."""
    claim = "routing rows = tokens - 1 in every training row"
    split = metrics.get("tito/relation/split", pd.Series(0.0, index=metrics.index)).fillna(0.0)
    whole = metrics[split == 0]
    if not {"routing/rows", "rollout/accepted"} <= set(metrics):
        return Check(claim, False, "routing/rows or rollout/accepted was not recorded")
    rows = whole["train/tokens"] - whole["routing/rows"]
    wrong = whole.index[rows != whole["rollout/accepted"]]
    return Check(
        claim, not len(wrong), _where(wrong, len(whole), "tokens - routing rows", "the number of rows")
    )


def _staleness(
    metrics: pd.DataFrame, num_critic_only_steps: int, *, publish_every: int, is_in_turn: bool
) -> Check:
    claim = "staleness is exactly 1, and 0 until the actor's first update is published"
    if is_in_turn:
        claim = "staleness is exactly 0"
    elif publish_every > 1:
        claim = f"staleness in versions is what publishing every {publish_every} updates makes it"
    if not {"staleness/mean", "staleness/max"} <= set(metrics):
        return Check(claim, False, "staleness was not recorded")
    # Versions that are published before a step's training and before its sampling, one step earlier.
    ahead = np.maximum(0, metrics.index.to_numpy() - num_critic_only_steps)
    before = np.maximum(0, metrics.index.to_numpy() - 1 - num_critic_only_steps)
    expected = (ahead - ahead % publish_every) - (before - before % publish_every)
    if is_in_turn:
        expected = np.zeros(len(metrics))
    right = (metrics["staleness/mean"] == expected) & (metrics["staleness/max"] == expected)
    wrong = metrics.index[~right]
    return Check(claim, not len(wrong), _where(wrong, len(metrics), "staleness", "as the schedule says"))


def _bounded(metrics: pd.DataFrame, max_staleness: int) -> Check:
    claim = f"no trained token is more than {max_staleness} versions old"
    if "staleness/max" not in metrics:
        return Check(claim, False, "staleness was not recorded")
    wrong = metrics.index[~(metrics["staleness/max"] <= max_staleness)]
    return Check(
        claim, not len(wrong), _where(wrong, len(metrics), "staleness/max", f"at most {max_staleness}")
    )


def _accounting(metrics: pd.DataFrame, trials: pd.DataFrame) -> Check:
    claim = "every launched trial is accounted for"
    counted = metrics.reindex(columns=[f"rollout/{fate}" for fate in _FATES]).fillna(0.0).sum(axis=1)
    training = trials[trials["kind"] == "train"]
    stored = training.groupby("step").size().reindex(metrics.index, fill_value=0)
    moved = metrics.reindex(columns=["rollout/carried", "rollout/continued"]).fillna(0.0)
    launched = metrics["rollout/launched"] + moved["rollout/carried"] - moved["rollout/continued"]
    fates = pd.crosstab(training["step"], training["outcome"]).reindex(
        index=metrics.index, columns=list(_FATES), fill_value=0
    )
    recorded = metrics.reindex(columns=[f"rollout/{fate}" for fate in _FATES]).fillna(0.0)
    same = (fates.to_numpy() == recorded.to_numpy()).all(axis=1)
    wrong = metrics.index[(launched != counted) | (launched != stored) | ~same]
    totals = ", ".join(f"{int(recorded[f'rollout/{fate}'].sum())} {fate}" for fate in _FATES)
    if len(wrong):
        return Check(claim, False, f"steps {_some(wrong)}: launched, counted and stored trials differ")
    return Check(claim, True, f"{int(launched.sum())} launched = {totals}; all stored")


def _explained_variance(metrics: pd.DataFrame) -> Check:
    claim = "explained variance is finite wherever returns vary"
    if not {"critic/explained_variance", "reward/std"} <= set(metrics):
        return Check(claim, False, "critic/explained_variance or reward/std was not recorded")
    varying = metrics[metrics["reward/std"] > 0]
    wrong = varying.index[~np.isfinite(varying["critic/explained_variance"])]
    return Check(claim, not len(wrong), _where(wrong, len(varying), "explained variance", "finite"))


def _where(wrong: pd.Index, steps: int, what: str, expected: str) -> str:
    if len(wrong):
        return f"{what} is not {expected} in {len(wrong)} of {steps} steps: {_some(wrong)}"
    return f"{what} is {expected} in all {steps} steps"


def _some(steps: pd.Index) -> str:
    return ", ".join(map(str, steps[:5])) + (", ..." if len(steps) > 5 else "")
