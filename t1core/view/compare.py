"""Several runs in one picture: their reward curves and the mean over runs."""

import math

import pandas as pd

from t1core.analysis import mean_interval
from t1core.view.style import COMPUTED, SERIES, Picture, finding, nothing_to_show, picture, styled

_EMA = 0.25
_LINES = ("-", (0, (6, 1)), (0, (2, 1)), (0, (6, 1, 1, 1)), (0, (1, 1)))


@styled
def figure_compared_rewards(curves: pd.DataFrame, *, table: pd.DataFrame) -> Picture:
    """Running mean of each run's reward, thin, and the mean over runs, thick.

    `curves` and `table` are analysis.reward_curves and analysis.compare_runs of the same runs.
    """
    figure, axes = picture()
    if curves.empty:
        nothing_to_show(axes, "no run to compare, or no step that all of them have")
        return figure
    wide = curves.pivot(index="step", columns="run", values="reward").sort_index()
    smooth = wide.ewm(alpha=_EMA, adjust=False).mean()
    for place, name in enumerate(smooth.columns):
        look = {
            "color": SERIES[place % len(SERIES)],
            "linestyle": _LINES[place % len(_LINES)],
            "linewidth": 1.1,
        }
        axes.plot(smooth.index, smooth[name], label=f"measured, smoothed: {name}", **look)
    if len(smooth.columns) > 1:
        mean = smooth.mean(axis=1)
        axes.plot(
            mean.index,
            mean,
            label="computed: mean over runs",
            color="black",
            **(COMPUTED | {"linewidth": 2.4}),
        )
    axes.set_xlabel("step")
    axes.set_ylabel(f"reward of an accepted trial (EMA {_EMA})")
    axes.legend(loc="best")
    finding(figure, _title(table))
    return figure


def _title(table: pd.DataFrame) -> str:
    rises = int((table["low"] > 0).sum())
    mean = mean_interval(table["reward_gain"].dropna())
    text = f"Reward rises, with an interval above 0, in {rises} of {len(table)} runs; mean gain {mean.estimate:+.3f}"
    return text if math.isnan(mean.low) else f"{text} [{mean.low:+.3f}, {mean.high:+.3f}] over runs"
