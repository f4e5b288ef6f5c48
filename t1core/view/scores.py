"""Published scores, with the luck that is in them: score against size, and benchmarks side by side."""

import itertools

import pandas as pd

from t1core.view.style import GREY, QUOTED_BAR, VERMILION, Picture, finding, panels, picture, styled

_OWN = {
    "base": "base",
    "rst_sft": "SFT",
    "rl_tmax": "RL, binary, TMax",
    "rl_rst_38k": "RL, dense, RST-38k",
    "t1": "T1",
}


@styled
def figure_size_vs_score(scores: pd.DataFrame, *, se_points: float) -> Picture:
    """Score against parameters where they are known (x, in billions), at the right edge where they are not.

    `scores` is the topic tb21 of the quoted numbers; se_points: the computed standard error of one score, in points.
    """
    figure, axes = picture(height=4.2)
    known = scores[scores["x"].notna()]
    unknown = scores[scores["x"].isna()]
    own = known["name"].isin(_OWN)
    edge = known["x"].max() * 2.4
    how = {"linestyle": "", "marker": "s", "markersize": 5, "markerfacecolor": "white"}
    for part, color, label in (
        (known[own], VERMILION, "quoted: one model, five stages of training"),
        (known[~own], "black", "quoted: other open models"),
    ):
        axes.plot(part["x"], part["value"], color=color, label=label, **how)
    axes.plot(
        [edge] * len(unknown), unknown["value"], color=GREY, marker="D", linestyle="", markersize=4,
        markerfacecolor="white", label="quoted: size not published",
    )  # fmt: skip
    for part in (scores[scores["name"].isin(_OWN)], unknown, known[~own]):
        for row, height in zip(part.itertuples(), _apart(part["value"]), strict=True):
            is_left = row.name in _OWN or row.x == known["x"].max()
            offset, side = ((-7, -3), "right") if is_left else ((7, -3), "left")
            axes.annotate(
                _OWN.get(row.name, row.what.split(" on Terminal")[0]), (edge if pd.isna(row.x) else row.x, height),
                xytext=offset, textcoords="offset points", fontsize=7, ha=side,
            )  # fmt: skip
    axes.errorbar(
        [known["x"].min() / 2], [66.0], yerr=se_points, color="#555555", capsize=3, linestyle="",
        label=f"computed: one standard error of any score, {se_points:.1f} points",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(known["x"].min() / 2.6, edge * 2.9)
    ticks = sorted(known["x"].unique())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("parameters, billions (logarithmic); right: not published")
    axes.set_ylabel("Terminal-Bench 2.1 under Terminus-2, %")
    axes.set_ylim(40, 84)
    axes.legend(loc="upper left")
    base, best = (float(scores.loc[scores["name"] == name, "value"].iloc[0]) for name in ("base", "t1"))
    above = int((scores["value"] > best).sum())
    finding(
        figure,
        f"Quoted: training lifts a 122B model from {base:.1f} to {best:.1f}%, {_count(above)} above it; "
        "no run of ours has this scale",
    )
    return figure


def _apart(values: pd.Series, *, least: float = 1.15) -> list[float]:
    """Heights of labels: as the values, but pushed up where two would lie over one another."""
    heights = dict(values)
    ordered = values.sort_values().index
    for below, above in itertools.pairwise(ordered):
        heights[above] = max(heights[above], heights[below] + least)
    return [heights[place] for place in values.index]


def _count(number: int) -> str:
    return {0: "none", 1: "one model"}.get(number, f"{number} models")


@styled
def figure_benchmarks(
    tb21: pd.DataFrame, *, lhtb: pd.DataFrame, tbh: pd.DataFrame, se: dict[str, float]
) -> Picture:
    """Three benchmarks as bars; `se` has the computed standard error of a score by benchmark, in points, where it is a
    share of tasks. Frames: name, value, label.
    """
    figure, axes = panels(3, height=4.0)
    for panel, (title, frame, key) in zip(
        axes,
        (
            ("Terminal-Bench 2.1\n% of 89 tasks", tb21, "tb21"),
            ("LHTB\nmean reward of 46 tasks, %", lhtb, "lhtb"),
            ("TBH\n% of 100 tasks", tbh, "tbh"),
        ),
        strict=True,
    ):
        ordered = frame.sort_values("value", kind="stable")
        styles = [
            QUOTED_BAR | ({"edgecolor": VERMILION, "linewidth": 1.6} if own else {}) for own in ordered["own"]
        ]
        for place, (row, how) in enumerate(zip(ordered.itertuples(), styles, strict=True)):
            panel.barh(place, row.value, height=0.65, **how)
            panel.text(
                row.value + (se.get(key) or 0) + 0.8, place, f"{row.value:.1f}", va="center", fontsize=7
            )
            if key in se:
                panel.plot(
                    [row.value - se[key], row.value + se[key]], [place, place], color="#999999", linewidth=3
                )
        panel.set_yticks(range(len(ordered)), ordered["label"], fontsize=7)
        panel.set_xlim(0, ordered["value"].max() * 1.4)
        panel.set_title(title, fontsize=8, loc="left")
        panel.grid(axis="y", visible=False)
    base, sft, best = (
        float(tb21.loc[tb21["name"] == name, "value"].iloc[0]) for name in ("base", "rst_sft", "t1")
    )
    finding(
        figure,
        f"Quoted: {sft - base:+.1f} points by SFT and {best - sft:+.1f} by RL on Terminal-Bench 2.1; RL gains less on "
        "LHTB and TBH (orange: the one model; grey, computed: one standard error)",
    )
    return figure
