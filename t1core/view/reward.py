"""The reward curve: does it learn?"""

import math

import pandas as pd

from t1core.analysis import QuarterGain
from t1core.view.style import (
    BLUE,
    COMPUTED,
    MEASURED,
    VERMILION,
    Picture,
    finding,
    nothing_to_show,
    picture,
    styled,
)

EMA = 0.25


@styled
def figure_reward(curve: pd.DataFrame, *, gain: QuarterGain) -> Picture:
    """Mean reward a step with its 95% interval, its running mean, and the means of the quarters that are
    compared.

    `curve` and `gain` are analysis.reward_curve and analysis.quarter_gain of the same trials.
    """
    figure, axes = picture()
    if curve.empty:
        nothing_to_show(axes, "no accepted trial yet")
        return figure
    axes.vlines(curve["step"], curve["low"], curve["high"], color=BLUE, alpha=0.25, linewidth=2)
    axes.plot(
        curve["step"],
        curve["reward"],
        color=BLUE,
        label="measured: mean of the step, 95% interval",
        **MEASURED,
    )
    smooth = curve["reward"].ewm(alpha=EMA, adjust=False).mean()
    axes.plot(curve["step"], smooth, color="black", label=f"computed: running mean (EMA {EMA})", **COMPUTED)
    for steps, mean, label in (
        (gain.first_steps, gain.first_mean, "computed: mean of a quarter"),
        (gain.last_steps, gain.last_mean, None),
    ):
        axes.hlines(
            mean, steps[0], max(steps[-1], steps[0] + 0.5), color=VERMILION, linewidth=2.5, label=label
        )
    axes.set_xlabel("step")
    axes.set_ylabel("reward of an accepted trial")
    axes.legend(loc="best")
    finding(figure, _title(gain))
    return figure


def _title(gain: QuarterGain) -> str:
    interval = gain.gain
    means = f"{gain.first_mean:.3f} in the first quarter of steps, {gain.last_mean:.3f} in the last"
    if math.isnan(interval.low):
        return f"Mean reward: {means}; too little data for an interval"
    change = "rises" if interval.low > 0 else ("falls" if interval.high < 0 else "does not clearly change")
    return f"Mean reward {change}: {means} (difference {interval}, 95%)"
