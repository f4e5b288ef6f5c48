"""The log-prob gap: do trainer and engine agree about the tokens, and what does replaying routes buy?"""

import pandas as pd

from t1core.view.style import BLUE, MEASURED, ORANGE, Picture, finding, nothing_to_show, picture, styled


@styled
def figure_logprob_gap(frame: pd.DataFrame) -> Picture:
    """Mean absolute gap by step, routes replayed and free; `frame` is analysis.logprob_gap of a run."""
    figure, axes = picture()
    series = {
        "replayed": ("measured: routes replayed", BLUE, {}),
        "free": ("measured: routing left free", ORANGE, {"linestyle": (0, (4, 1)), "marker": "^"}),
    }
    shown = [name for name in series if frame[name].notna().any()]
    if not shown:
        nothing_to_show(axes, "no log-prob gap recorded yet")
        return figure
    for name in shown:
        label, color, marks = series[name]
        axes.plot(frame["step"], frame[name], color=color, label=label, **(MEASURED | marks))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("step")
    axes.set_ylabel("mean |trainer - rollout| log-prob, nats")
    axes.legend(loc="best")
    finding(figure, _title(frame, shown))
    return figure


def _title(frame: pd.DataFrame, shown: list[str]) -> str:
    means = frame[shown].mean()
    if len(shown) < 2:
        how = "replayed" if "replayed" in shown else "left free"
        gap = f"{means.iloc[0]:.2g} nats a token"
        return f"Trainer and engine differ by {gap} with routes {how} (mean over steps)"
    change = "cuts" if means["replayed"] < means["free"] else "does not cut"
    return (
        f"Replaying routes {change} the log-prob gap: {means['free']:.2g} nats a token with free routing, "
        f"{means['replayed']:.2g} with replay (means over steps)"
    )
