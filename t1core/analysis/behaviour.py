"""What the policy does: why trials end, how many turns they take, how each family of tasks fares."""

import pandas as pd

from t1core.analysis.learning import accepted, quarters


def stop_reasons(trials: pd.DataFrame) -> pd.DataFrame:
    """Share of launched training trials by stop reason, a row a step; reasons that never occur have no
    column.
    """
    launched = trials[trials["kind"] == "train"]
    if launched.empty:
        return pd.DataFrame({"step": pd.Series(dtype="int64")})
    table = pd.crosstab(launched["step"], launched["stop_reason"], normalize="index")
    order = table.mean().sort_values(ascending=False, kind="stable").index
    return table[order].rename_axis(columns=None).reset_index()


def turns_by_step(trials: pd.DataFrame) -> pd.DataFrame:
    """A row a step over accepted trials: mean turns, mean sampled tokens, share of turns that didn't parse."""
    groups = accepted(trials).groupby("step")
    return pd.DataFrame(
        {
            "turns": groups["num_turns"].mean(),
            "sampled_tokens": groups["sampled_tokens"].mean(),
            "parse_error_frac": groups["num_parse_errors"].sum() / groups["num_turns"].sum(),
        }
    ).reset_index()


def family_table(trials: pd.DataFrame) -> pd.DataFrame:
    """A row a family: launched, accepted, mean reward and solved share in the first and last quarter of
    steps.

    Sorted by reward_gain. NaN where a family has no accepted trial in a quarter.
    """
    training = trials[trials["kind"] == "train"]
    kept = accepted(trials)
    first, last = quarters(kept["step"]) if len(kept) else ([], [])
    table = pd.DataFrame(
        {
            "launched": training.groupby("family").size(),
            "accepted": kept.groupby("family").size(),
        }
    )
    for name, steps in (("first", first), ("last", last)):
        part = kept[kept["step"].isin(steps)].groupby("family")
        table[f"reward_{name}"] = part["reward"].mean()
        table[f"solved_{name}"] = part["solved"].mean().astype("float64")
    table["accepted"] = table["accepted"].fillna(0).astype(int)
    table["reward_gain"] = table["reward_last"] - table["reward_first"]
    return table.sort_values("reward_gain", ascending=False, kind="stable").reset_index()
