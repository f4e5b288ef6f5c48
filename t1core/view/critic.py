"""Explained variance: does the critic know more than how many tests a task has?"""

import pandas as pd

from t1core.view.style import (
    BLUE,
    COMPUTED,
    MEASURED,
    ORANGE,
    Picture,
    finding,
    nothing_to_show,
    picture,
    rule,
    styled,
)

_FLOOR = -1.5


@styled
def figure_explained_variance(frame: pd.DataFrame) -> Picture:
    """EV of the critic and of the num_tests baseline by step; `frame` is analysis.explained_variance of a
    run.

    The axis ends at -1.5; what lies below is drawn at the edge and counted in the label.
    """
    figure, axes = picture()
    known = frame.dropna(subset=["critic"])
    if known.empty:
        nothing_to_show(axes, "no explained variance: there is no critic, or returns did not vary")
        return figure
    below = int((known["critic"] < _FLOOR).sum())
    label = "measured: critic" + (
        f" ({below} of {len(known)} steps below {_FLOOR}, at the edge)" if below else ""
    )
    axes.plot(known["step"], known["critic"].clip(lower=_FLOOR), color=BLUE, label=label, **MEASURED)
    axes.plot(
        frame["step"],
        frame["num_tests_baseline"].clip(lower=_FLOOR),
        color=ORANGE,
        label="computed: predictor that knows only the number of tests",
        **COMPUTED,
    )
    rule(axes, 0.0, "no better than the mean")
    lowest = min(known["critic"].min(), frame["num_tests_baseline"].min(), 0.0)
    axes.set_ylim(max(lowest, _FLOOR) - 0.4, 1.04)  # room for the legend below the lines
    axes.set_xlabel("step")
    axes.set_ylabel("explained variance of returns")
    axes.legend(loc="lower right")
    finding(figure, _title(known))
    return figure


def _title(known: pd.DataFrame) -> str:
    last = known["critic"].iloc[-max(1, len(known) // 4) :].mean()
    both = known.dropna(subset=["num_tests_baseline"])
    above = int((both["critic"] > both["num_tests_baseline"]).sum())
    negative = int((known["critic"] < 0).sum())
    against = f", above the baseline in {above} of {len(both)} steps" if len(both) else ""
    low = f"below 0 in {negative}" if negative else "never below 0"
    return f"Explained variance is {last:.2f} in the last quarter of steps{against}; {low}"
