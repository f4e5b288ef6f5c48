"""Is the critic worth its size: explained variance by step against a predictor that knows only the number of tests."""

import numpy as np
import pandas as pd

from t1core.analysis.columns import columns_of
from t1core.analysis.learning import accepted


def explained_variance(metrics: pd.DataFrame, *, trials: pd.DataFrame) -> pd.DataFrame:
    """A row a trained step: step, critic, num_tests_baseline, r2, value_bias; NaN where returns did not vary.

    The baseline is a straight line in a task's number of tests, at each step through all rewards of earlier steps,
    against the same tokens and returns as the critic.
    """
    names = {
        "critic/explained_variance": "critic",
        "critic/r2": "r2",
        "critic/value_bias": "value_bias",
    }
    frame = columns_of(metrics, names)
    baseline = num_tests_baseline(trials)
    frame.insert(2, "num_tests_baseline", frame["step"].map(baseline))
    return frame


def num_tests_baseline(trials: pd.DataFrame) -> pd.Series:
    """Explained variance by step of reward ~ a + b * number of tests, fitted on the steps before; weighted by sampled
    tokens, as the critic's is. NaN at the first step, and where rewards did not vary."""
    kept = accepted(trials)
    values = {}
    for step, part in kept.groupby("step"):
        before = kept[kept["step"] < step]
        weights = part["sampled_tokens"].to_numpy(float)
        if before["num_tests"].nunique() < 2 or part["reward"].nunique() < 2:
            values[step] = np.nan
            continue
        slope, offset = np.polyfit(
            before["num_tests"], before["reward"], 1, w=np.sqrt(before["sampled_tokens"])
        )
        returns = part["reward"].to_numpy(float)
        residual = returns - (offset + slope * part["num_tests"].to_numpy(float))
        values[step] = 1 - _variance(residual, weights) / _variance(returns, weights)
    return pd.Series(values, name="num_tests_baseline", dtype=float)


def _variance(values: np.ndarray, weights: np.ndarray) -> float:
    mean = np.average(values, weights=weights)
    return float(np.average((values - mean) ** 2, weights=weights))


def value_noise(*, largest: float = 8.0, points: int = 81) -> pd.DataFrame:
    """noise_over_return_sd and explained_variance of a head whose values are noise, independent of the returns:
    1 - Var(R - V) / Var(R) = -(sd(V) / sd(R))^2."""
    ratio = np.linspace(0.0, largest, points)
    return pd.DataFrame({"noise_over_return_sd": ratio, "explained_variance": -(ratio**2)})
