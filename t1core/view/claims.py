"""A claim in pictures: paired differences of arms, and each arm's course over the steps."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from t1core.analysis.claims import Judged, Verdict
from t1core.view.style import SERIES, Picture, finding, nothing_to_show, picture, rule, styled

_EMA = 0.25
_MARKERS = {Verdict.HELD: "o", Verdict.NOT_HELD: "X", Verdict.UNDECIDED: "D", Verdict.NOT_RUN: "D"}
_LINES = ("-", (0, (6, 1)), (0, (2, 1)), (0, (6, 1, 1, 1)), (0, (1, 1)))


@styled
def figure_contrasts(judged: Sequence[Judged], *, title: str) -> Picture:
    """A line a contrast: the difference of each seed, their mean and its 95% interval. Measures differ in unit, so each
    contrast is scaled by its own largest value, which its label tells."""
    seen = [one for one in judged if one.differences]
    figure, axes = picture(height=1.4 + 0.42 * max(1, len(seen)))
    if not seen:
        nothing_to_show(axes, "no contrast has a seed that both of its arms finished")
        return figure
    for place, one in enumerate(reversed(seen)):
        bounds = [value for value in (one.interval.low, one.interval.high) if math.isfinite(value)]
        reach = max(map(abs, [*one.differences.values(), *bounds])) or 1.0
        axes.plot(
            np.array(list(one.differences.values())) / reach,
            [place] * len(one.differences),
            linestyle="",
            marker="|",
            markersize=11,
            color="black",
            label="measured: a seed" if place == 0 else None,
        )
        if len(bounds) == 2:
            axes.plot(np.array(bounds) / reach, [place, place], color=SERIES[0], linewidth=1.6)
        axes.plot(
            [one.interval.estimate / reach],
            [place],
            marker=_MARKERS[one.verdict],
            color=SERIES[0],
            linestyle="",
            label="computed: mean over seeds, 95% interval" if place == 0 else None,
        )
        axes.annotate(
            f"{one.interval.estimate:+.3g}: {one.verdict}",
            (1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7,
        )
    axes.set_yticks(range(len(seen)), [_label(one) for one in reversed(seen)], fontsize=7)
    axes.axvline(0, color="#333333", linewidth=0.8)
    axes.set_xlim(-1.1, 1.1)
    axes.set_xticks([-1, 0, 1], ["- largest", "0", "+ largest"])
    axes.set_ylim(-0.6, len(seen) - 0.4)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.35 - 0.2 / len(seen)), ncols=2)
    finding(figure, title)
    return figure


def _label(one: Judged) -> str:
    expected = "=" if one.contrast.expect == "same" else ">" if one.contrast.expect == "higher" else "<"
    return f"{one.contrast.arm} {expected} {one.contrast.against}?\n{one.measure}"


@styled
def figure_arms(
    curves: pd.DataFrame, *, what: str, title: str, quoted: Sequence[tuple[str, float]] = ()
) -> Picture:
    """Each arm's mean over seeds by step, smoothed, and its seeds, thin. `curves`: arm, seed, step, value; `quoted` are
    levels that others reported, drawn and named as quoted."""
    figure, axes = picture()
    if curves.empty:
        nothing_to_show(axes, f"no run recorded it: {what}")
        return figure
    for place, (arm, part) in enumerate(curves.groupby("arm", sort=False)):
        wide = part.pivot(index="step", columns="seed", values="value").sort_index()
        smooth = wide.ewm(alpha=_EMA, adjust=False).mean()
        look = {"color": SERIES[place % len(SERIES)], "linestyle": _LINES[place // len(SERIES) % len(_LINES)]}
        for seed in smooth:
            axes.plot(smooth.index, smooth[seed], linewidth=0.6, alpha=0.45, **look)
        label = f"measured, smoothed: {arm} ({len(wide.columns)} seeds)"
        axes.plot(smooth.index, smooth.mean(axis=1), linewidth=2.0, label=label, **look)
    for name, value in quoted:
        rule(axes, value, f"quoted: {name}")
    axes.set_xlabel("step")
    axes.set_ylabel(f"{what} (EMA {_EMA})")
    axes.legend(loc="best", fontsize=7)
    finding(figure, title)
    return figure
