"""What a trial's reward says, binary against counted: bits a trial, groups without variance, progress in failed groups.

A group is the trials of one policy at one task. With b = 1 where every test passes, and P the number that pass:

    H(R | task, policy)         bits of a trial: mean over groups of the entropy of R within the group
    I(R; policy | task)         bits about the policy: mean over tasks of H(R | task) - H(R | task, policy)
    flat(G)                     probability that G trials of a group have one reward, sum_r C(n_r, G) / C(n, G)

Entropies are plug-in values, which few trials bias downwards, and more so for P, which takes more values; the corrected
ones add Miller and Madow's (K - 1) / (2 n ln 2) bits for K values seen in n trials. Information is biased upwards:
beside it stands what it comes to when policies' names are shuffled within each task. Within a task P/20 and any other
strictly rising function of P say what P says.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from t1core.analysis.checks import Check

REWARDS: Mapping[str, str] = {"binary": "solved", "counted": "passed"}
ALL = "all"  # the policy of the row that speaks of every group
MIN_TRIALS = 4
GROUP_SIZES = (2, 3, 4, 5)
_COLUMNS = ("model", "task", "T", "P", "b")


@dataclass(frozen=True)
class CountedTrials:
    """Trials that were graded by counted tests: `frame` has policy, task, num_tests, passed, solved, a row a trial.

    Left out: `num_without_reward` records that hold no outcome at all, `num_without_tests` with a reward and no test
    results, which says 0 whatever was done.
    """

    source: str
    frame: pd.DataFrame
    num_records: int
    num_without_reward: int
    num_without_tests: int


def read_counted_trials(path: Path | str) -> CountedTrials:
    """Read {"source": text, "columns": [...], "rows": [[...]]} with at least the columns model, task, T (tests), P
    (tests passed) and b (reward file: 1 or 0), null where there is none.

    Raises ValueError for another form, and for a record whose b is 1 without all tests passing or the reverse.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"trials {path}: no such file; give a JSON file with columns {', '.join(_COLUMNS)}")
    try:
        stored = json.loads(path.read_text())
        records = pd.DataFrame(stored["rows"], columns=stored["columns"])
    except (ValueError, KeyError, TypeError) as error:
        form = '{"source": ..., "columns": [...], "rows": [[...]]}'
        raise ValueError(f"trials {path}: {type(error).__name__}: {error}; the form is {form}") from error
    if missing := [name for name in _COLUMNS if name not in records]:
        raise ValueError(f"trials {path} has no column {', '.join(missing)}; it needs {', '.join(_COLUMNS)}")
    rewarded = records[records["b"].notna()]
    tested = rewarded[rewarded["T"].notna() & (rewarded["T"] != 0)]
    frame = pd.DataFrame(
        {
            "policy": tested["model"].astype(str),
            "task": tested["task"].astype(str),
            "num_tests": tested["T"].astype(int),
            "passed": tested["P"].astype(int),
            "solved": (tested["b"] == 1).astype(int),
        }
    ).reset_index(drop=True)
    wrong = frame[
        (frame["solved"] != (frame["passed"] == frame["num_tests"])) | (frame["passed"] > frame["num_tests"])
    ]
    if len(wrong):
        first = wrong.iloc[0]
        raise ValueError(
            f"trials {path}: {len(wrong)} records contradict themselves, the first of {first['policy']} at "
            f"{first['task']}: P={first['passed']} of T={first['num_tests']} with b={first['solved']}; b must be 1 "
            "exactly where all tests pass"
        )
    return CountedTrials(
        source=str(stored.get("source", "not stated")),
        frame=frame,
        num_records=len(records),
        num_without_reward=len(records) - len(rewarded),
        num_without_tests=len(rewarded) - len(tested),
    )


@dataclass(frozen=True)
class RewardDensity:
    """Aggregates of counted trials.

    `counts`: records read and left out, groups kept. `policies`: a row a policy and one for all groups; bits_* are
    means over groups, *_corrected with Miller and Madow's term, bits_gain = counted - binary with 1.96 standard errors
    over groups; flat_* the share of groups without variance; all_failed groups without a solved trial, of which
    all_failed_varying vary in P and all_failed_above_floor hold a trial that passes more than the fewest passed of
    that task by any trial. `information`: a row a reward, bits about the policy, and shuffled. `flat`: flat_* by policy
    and group size.
    """

    source: str
    counts: Mapping[str, int]
    policies: pd.DataFrame
    information: pd.DataFrame
    flat: pd.DataFrame

    def to_json(self) -> str:
        frames = {
            name: getattr(self, name).to_dict("records") for name in ("policies", "information", "flat")
        }
        return json.dumps({"source": self.source, "counts": dict(self.counts), **frames}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        stored = json.loads(text)
        frames = {name: pd.DataFrame(stored[name]) for name in ("policies", "information", "flat")}
        return cls(source=stored["source"], counts=stored["counts"], **frames)


def measure_reward_density(trials: CountedTrials, *, num_shuffles: int = 200, seed: int = 0) -> RewardDensity:
    """Aggregate groups of at least four trials. Raises ValueError when there are none."""
    groups = group_table(trials.frame)
    kept = groups[groups["num_trials"] >= MIN_TRIALS]
    if kept.empty:
        raise ValueError(
            f"no policy has {MIN_TRIALS} counted trials at a task; give a file with repeated trials"
        )
    counts = {
        "records": trials.num_records,
        "without_reward": trials.num_without_reward,
        "without_tests": trials.num_without_tests,
        "trials": len(trials.frame),
        "groups": len(kept),
        "groups_too_small": len(groups) - len(kept),
    }
    in_kept = trials.frame.merge(kept[["policy", "task"]], on=["policy", "task"])
    return RewardDensity(
        source=trials.source,
        counts=counts,
        policies=_policy_table(kept),
        information=policy_information(in_kept, num_shuffles=num_shuffles, seed=seed),
        flat=flat_by_group_size(in_kept),
    )


def group_table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a (policy, task): num_trials, num_solved, entropies, flatness, and the spread and floor of P."""
    floor = frame.groupby("task")["passed"].min()
    rows = []
    for (policy, task), group in frame.groupby(["policy", "task"], sort=True):
        row: dict[str, Any] = {"policy": policy, "task": task, "num_trials": len(group)}
        row["num_solved"] = int(group["solved"].sum())
        for reward, column in REWARDS.items():
            counts = np.unique(group[column], return_counts=True)[1]
            row[f"bits_{reward}"] = entropy_bits(counts)
            row[f"corrected_{reward}"] = row[f"bits_{reward}"] + miller_madow_bits(counts)
            row[f"flat_{reward}"] = len(counts) == 1
        row["is_above_floor"] = bool(group["passed"].max() > floor[task])
        rows.append(row)
    return pd.DataFrame(rows)


def entropy_bits(counts: np.ndarray) -> float:
    """Plug-in entropy of positive counts [K], in bits."""
    shares = counts / counts.sum()
    return float(-(shares * np.log2(shares)).sum()) + 0.0  # no -0.0


def miller_madow_bits(counts: np.ndarray) -> float:
    """First-order correction of the plug-in entropy of positive counts [K], in bits."""
    return (len(counts) - 1) / (2 * int(counts.sum()) * math.log(2))


def _policy_table(groups: pd.DataFrame) -> pd.DataFrame:
    parts = [(str(policy), part) for policy, part in groups.groupby("policy", sort=False)]
    rows = []
    for policy, part in [*parts, (ALL, groups)]:
        failed = part[part["num_solved"] == 0]
        gain = part["bits_counted"] - part["bits_binary"]
        rows.append(
            {
                "policy": policy,
                "num_trials": int(part["num_trials"].sum()),
                "num_groups": len(part),
                "solved_frac": float(part["num_solved"].sum() / part["num_trials"].sum()),
                "bits_binary": float(part["bits_binary"].mean()),
                "bits_counted": float(part["bits_counted"].mean()),
                "bits_gain": float(gain.mean()),
                "bits_gain_error": float(1.96 * gain.std(ddof=1) / math.sqrt(len(part))),
                "corrected_binary": float(part["corrected_binary"].mean()),
                "corrected_counted": float(part["corrected_counted"].mean()),
                "flat_binary": float(part["flat_binary"].mean()),
                "flat_counted": float(part["flat_counted"].mean()),
                "all_failed": len(failed),
                "all_failed_varying": int((~failed["flat_counted"]).sum()),
                "all_failed_above_floor": int(failed["is_above_floor"].sum()),
            }
        )
    return pd.DataFrame(rows)


def policy_information(frame: pd.DataFrame, *, num_shuffles: int, seed: int) -> pd.DataFrame:
    """Columns reward, num_tasks, bits, shuffled (mean), shuffled_high (97.5%), excess = bits - shuffled.

    Over tasks that at least two policies tried. Both rewards see the same shuffles.
    """
    tasks = [part for _, part in frame.groupby("task", sort=True) if part["policy"].nunique() > 1]
    rows = []
    for reward, column in REWARDS.items():
        draw = np.random.default_rng(seed)
        codes = [
            (
                np.unique(part[column], return_inverse=True)[1],
                np.unique(part["policy"], return_inverse=True)[1],
            )
            for part in tasks
        ]
        found = float(np.mean([_information(*pair) for pair in codes])) if codes else math.nan
        shuffled = [
            float(np.mean([_information(value, draw.permutation(policy)) for value, policy in codes]))
            for _ in range(num_shuffles if codes else 0)
        ]
        chance = float(np.mean(shuffled)) if shuffled else math.nan
        high = float(np.quantile(shuffled, 0.975)) if shuffled else math.nan
        rows.append(
            {
                "reward": reward,
                "num_tasks": len(tasks),
                "bits": found,
                "shuffled": chance,
                "shuffled_high": high,
                "excess": found - chance,
            }
        )
    return pd.DataFrame(rows)


def _information(value: np.ndarray, policy: np.ndarray) -> float:
    """Plug-in mutual information of two codes [n], in bits."""
    table = np.zeros((policy.max() + 1, value.max() + 1))
    np.add.at(table, (policy, value), 1)
    parts = _log_sum(table) - _log_sum(table.sum(axis=0)) - _log_sum(table.sum(axis=1))
    return parts / len(value) + math.log2(len(value))


def _log_sum(counts: np.ndarray) -> float:
    """Sum of n log2 n over counts of any shape, 0 for n = 0."""
    return float((counts * np.log2(np.maximum(counts, 1))).sum())


def flat_by_group_size(frame: pd.DataFrame, *, sizes: Sequence[int] = GROUP_SIZES) -> pd.DataFrame:
    """Columns policy, size, flat_binary, flat_counted: mean over a policy's groups with at least `size` trials of the
    probability that `size` of them, drawn without replacement, have one reward."""
    rows = []
    for policy, part in frame.groupby("policy", sort=True):
        groups = [group for _, group in part.groupby("task")]
        for size in sizes:
            large = [group for group in groups if len(group) >= size]
            if large:
                shares = {
                    f"flat_{reward}": float(np.mean([_flat_chance(group[column], size) for group in large]))
                    for reward, column in REWARDS.items()
                }
                rows.append({"policy": policy, "size": size, "num_groups": len(large), **shares})
    return pd.DataFrame(rows)


def _flat_chance(values: pd.Series, size: int) -> float:
    counts = np.unique(values, return_counts=True)[1].tolist()
    return sum(math.comb(count, size) for count in counts) / math.comb(len(values), size)


def density_lines(density: RewardDensity) -> Iterator[str]:
    """The aggregates as text."""
    yield f"source     {density.source}"
    yield "counts     " + ", ".join(f"{number} {name}" for name, number in density.counts.items())
    for frame in (density.policies, density.information, density.flat):
        yield ""
        yield from frame.to_string(index=False, float_format=lambda value: f"{value:.3f}").splitlines()


def check_reward_density(density: RewardDensity) -> list[Check]:
    """What must hold whatever the trials are, since b is a function of P."""
    table, information = density.policies, density.information.set_index("reward")
    flat = density.flat
    lost = (table["bits_binary"] - table["bits_counted"]).max()
    return [
        Check(
            "a count says no less than a bit, for every policy",
            bool(lost <= 1e-12),
            f"{-lost:.3f} bits more at least",
        ),
        Check(
            "groups flat in the count are flat in the bit",
            bool(
                (table["flat_counted"] <= table["flat_binary"]).all()
                and (flat["flat_counted"] <= flat["flat_binary"] + 1e-12).all()
            ),
            f"{len(table)} policies, {len(flat)} sizes",
        ),
        Check(
            "the count says no less about the policy",
            bool(information.loc["counted", "bits"] >= information.loc["binary", "bits"] - 1e-12),
            f"{information.loc['counted', 'bits']:.3f} against {information.loc['binary', 'bits']:.3f} bits",
        ),
        Check(
            "every record is accounted for",
            density.counts["records"]
            == density.counts["trials"] + density.counts["without_reward"] + density.counts["without_tests"],
            f"{density.counts['records']} records, {density.counts['trials']} counted trials",
        ),
    ]
