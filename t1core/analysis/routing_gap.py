"""What routing costs the agreement of trainer and engine: flips, log-prob gaps and their tail, by condition.

With d = log p_trainer - log p_rollout of a sampled token (T1 eq. 24):
    k3 = mean of exp(d) - 1 - d          estimates KL(rollout || trainer)
    F(tau) = share of tokens with max(p/q, q/p) > tau, that is |d| > log(tau)
"""

import numpy as np
import pandas as pd

from t1core.analysis.checks import Check

TAUS = (1.01, 1.05, 1.2, 2.0)
CONDITION = ("model", "num_layers", "horizon", "engine", "trainer", "weights", "routing")
WHOLE = -1  # the `layer` of rows that speak of all layers
SAMPLED, AHEAD = "those that sampled", "one step ahead"  # what the trainer's weights are


def gap_statistics(
    trainer_logprobs: np.ndarray, *, rollout_logprobs: np.ndarray, mask: np.ndarray, rows: np.ndarray
) -> dict[str, float]:
    """Means over sampled tokens; all arrays [T], `rows` the row of each token. AssertionError if one is not finite.

    `abs_mean_error` is 1.96 standard errors of `abs_mean`, over rows, since tokens of one row are not independent.
    """
    kept = mask.astype(bool)
    gap = trainer_logprobs[kept].astype(np.float64) - rollout_logprobs[kept].astype(np.float64)
    assert np.isfinite(gap).all(), "a log-prob of a sampled token is not finite"
    per_row = pd.Series(np.abs(gap)).groupby(rows[kept]).agg(["sum", "size"])
    weights = per_row["size"] / per_row["size"].sum()
    spread = ((per_row["sum"] / per_row["size"] - np.abs(gap).mean()) ** 2 * weights**2).sum()
    return {
        "tokens": float(len(gap)),
        "mean": float(gap.mean()),
        "abs_mean": float(np.abs(gap).mean()),
        "abs_mean_error": float(1.96 * np.sqrt(spread)),
        "abs_max": float(np.abs(gap).max()),
        "k3": float((np.expm1(gap) - gap).mean()),
        **{f"tail_{tau:g}": float((np.abs(gap) > np.log(tau)).mean()) for tau in TAUS},
    }


def flip_statistics(flips: np.ndarray, *, mask: np.ndarray) -> pd.DataFrame:
    """Columns layer, flip_frac, flip_token_frac over sampled tokens; flips bool [T, L].

    One row a layer, and one for the whole (layer -1): the share of all router choices that flip, and of tokens with a
    flip in any layer.
    """
    kept = flips[mask.astype(bool)]
    whole = {"layer": WHOLE, "flip_frac": kept.mean(), "flip_token_frac": kept.any(axis=1).mean()}
    layers = [
        {"layer": layer, "flip_frac": share, "flip_token_frac": share}
        for layer, share in enumerate(kept.mean(axis=0))
    ]
    return pd.DataFrame([whole, *layers])


def replay_effect(frame: pd.DataFrame, *, measure: str = "abs_mean") -> pd.DataFrame:
    """A row a condition: `free`, `replayed` and `saved_frac`, the share of the free gap that replay takes away."""
    whole = frame[frame["layer"] == WHOLE]
    keys = [name for name in CONDITION if name != "routing"]
    table = whole.pivot(index=keys, columns="routing", values=measure).reset_index()
    table.columns.name = None
    table["saved_frac"] = 1 - table["replayed"] / table["free"]
    return table


def flips_by_layer(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a (condition, layer): flip_frac of sampled tokens, routing free."""
    rows = frame[(frame["layer"] != WHOLE) & (frame["routing"] == "free")]
    return rows[[*CONDITION[:-1], "layer", "flip_frac"]].reset_index(drop=True)


def tails(frame: pd.DataFrame) -> pd.DataFrame:
    """F(tau) in long form: a row a (condition, tau), columns tau and share."""
    whole = frame[frame["layer"] == WHOLE]
    names = {f"tail_{tau:g}": tau for tau in TAUS}
    long = whole.melt(id_vars=[*CONDITION], value_vars=[*names], var_name="tau", value_name="share")
    return long.assign(tau=long["tau"].map(names)).sort_values([*CONDITION, "tau"]).reset_index(drop=True)


def check_routing_gap(frame: pd.DataFrame) -> list[Check]:
    """What must hold whatever the numbers are: the controls."""
    whole = frame[frame["layer"] == WHOLE]
    free = whole[whole["routing"] == "free"]
    dense = free[free["model"] == "dense"]
    same = replay_effect(frame)
    unflipped = same[(same["engine"] == "fp32") & (same["trainer"] == "fp32") & (same["weights"] == SAMPLED)]
    exact = free[(free["engine"] == "fp32") & (free["trainer"] == "fp32") & (free["weights"] == SAMPLED)]
    bf16 = free[(free["engine"] == "bf16") & (free["model"] != "dense") & (free["weights"] == SAMPLED)]
    return [
        Check(
            "a dense model never flips",
            bool((dense["flip_frac"] == 0).all()),
            f"{dense['flip_frac'].max():g} at most over {len(dense)} conditions",
        ),
        Check(
            "replaying a dense model changes nothing",
            bool((same[same["model"] == "dense"]["saved_frac"].abs() < 1e-3).all()),
            f"{same[same['model'] == 'dense']['saved_frac'].abs().max():.1e} of the gap at most",
        ),
        Check(
            "in fp32 on both sides the same weights agree",
            bool((unflipped["replayed"] < 1e-4).all()),
            f"{unflipped['replayed'].max():.1e} nats a token at most, {exact['flip_frac'].max():.1e} flips",
        ),
        Check(
            "a bf16 engine flips routers in every model with experts",
            bool((bf16[bf16["horizon"] == "long"]["flip_frac"] > 0).all()),
            f"{bf16['flip_frac'].min():.4f} to {bf16['flip_frac'].max():.4f} of the choices",
        ),
    ]
