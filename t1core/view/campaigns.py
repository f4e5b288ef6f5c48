"""Benchmark scores over training: three quoted campaigns, and held-out tasks of runs of ours."""

import pandas as pd

from t1core.view.style import (
    BLUE,
    GREEN,
    MEASURED,
    ORANGE,
    QUOTED,
    VERMILION,
    Picture,
    finding,
    panels,
    rule,
    styled,
)

_QUOTED = {
    "tmax": ("binary, TMax-15k", ORANGE, "D"), "rst": ("dense, RST-38k", GREEN, "^"), "t1": ("dense, T1-15k", BLUE,
"s"), }  # fmt: skip


@styled
def figure_campaigns(
    curve: pd.DataFrame, *, anchors: dict[str, float], heldout: pd.DataFrame, se_points: float
) -> Picture:
    """Quoted scores by step (left; bands as bars), solved held-out tasks of our runs before and after (right).

    `curve` has campaign, x and value of the quoted points, and rows without x for the ends of a band; `heldout` has
    run, split, solved_before, solved_after, steps. `anchors`: names of horizontal rules and their values.
    """
    figure, (left, right) = panels(2, height=3.9, width_ratios=(1.7, 1))
    for name, (label, color, marker) in _QUOTED.items():
        part = curve[(curve["campaign"] == name) & curve["x"].notna()].sort_values("x")
        left.plot(
            part["x"],
            part["value"],
            color=color,
            label=f"quoted: {label}",
            **(QUOTED | {"marker": marker, "linestyle": "" if name == "t1" else ":"}),
        )
    for band in curve[curve["band_from"].notna()].itertuples():
        color = _QUOTED[band.campaign][1]
        left.fill_between(
            [band.band_from, band.band_to], band.low, band.high, color=color, alpha=0.18, linewidth=0
        )
    for name, value in anchors.items():
        rule(left, value, f"quoted: {name} {value:g}")
    left.errorbar(
        [92],
        [57.0],
        yerr=se_points,
        color="#555555",
        capsize=3,
        marker="",
        label="computed: one standard error, 89 tasks",
    )
    left.set_ylim(41, 76)
    left.set_xlim(-3, 118)
    left.set_xlabel("training step")
    left.set_ylabel("Terminal-Bench 2.1, %")
    left.legend(loc="upper left", fontsize=7)
    for (run, part), (color, line, marker) in zip(
        heldout.groupby("run", sort=False),
        ((BLUE, "-", "o"), (VERMILION, "--", "v"), (GREEN, "-.", "P")),
        strict=False,
    ):
        row = part.iloc[0]
        right.plot(
            [0, row["steps"]], [100 * row["solved_before"], 100 * row["solved_after"]], label=f"measured: {run}",
            **(MEASURED | {"color": color, "linestyle": line, "marker": marker, "markersize": 5}),
        )  # fmt: skip
    right.set_ylim(0, 32)
    right.set_xlabel("training step")
    right.set_ylabel("held-out practice tasks solved, %")
    right.legend(loc="upper left", fontsize=7)
    gains = 100 * (heldout["solved_after"] - heldout["solved_before"])
    told = ", ".join(f"{gain:+.0f}" for gain in gains)
    finding(
        figure,
        f"Quoted: only the campaigns with a dense reward pass SFT's {anchors['SFT']:g}%. Ours, other tasks and a "
        f"model of 1.4M parameters: held-out {told} points; nothing here is of that scale",
    )
    return figure


@styled
def figure_grpo(points: pd.DataFrame, *, sft: float, se_points: float) -> Picture:
    """GRPO's two quoted evaluations beside SFT. `points`: x and value."""
    figure, axes = panels(1, height=2.6)
    axes.errorbar(
        points["x"], points["value"], yerr=se_points, color=VERMILION, ecolor="#999999", elinewidth=3,
        label="quoted: GRPO; grey, computed: one standard error", **(QUOTED | {"linestyle": ":"}),
    )  # fmt: skip
    rule(axes, sft, f"quoted: SFT {sft:g}")
    axes.set_xlim(0, 30)
    axes.set_ylim(40, 62)
    axes.set_xlabel("training step")
    axes.set_ylabel("Terminal-Bench 2.1, %")
    axes.legend(loc="upper left")
    value = points["value"].iloc[0]
    finding(
        figure,
        f"Quoted: GRPO stands at {value:g}% at both evaluations, {value - sft:+.1f} points from SFT, which is "
        f"{(value - sft) / (2**0.5 * se_points):.1f} standard errors of a difference: neither a gain nor a loss",
    )
    return figure
