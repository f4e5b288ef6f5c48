"""Where a summary is asked for, and where it still fits."""

import pandas as pd

from t1core.view.style import BLUE, GREEN, VERMILION, Picture, finding, picture, styled


@styled
def figure_summary_regions(regions: pd.DataFrame, *, failed: float, attempts: int) -> Picture:
    """A line of prompt lengths with the region in which summaries are asked for and the one in which they fit.

    `regions` is analysis.summary_regions; failed: the quoted percentage of `attempts` that failed.
    """
    at = dict(zip(regions["bound"], regions["tokens"], strict=True))
    figure, axes = picture(height=2.9)
    start = at["ours"] - 3000
    lanes = (
        (2, "a summary still fits", start, at["longest feasible"], GREEN, "//"),
        (1, "Terminus-2 asks for one", at["asked from"], at["asked up to"], VERMILION, "xx"),
        (0, "t1core asks for one", start, at["ours"], BLUE, ".."),
    )
    for place, _, low, high, color, hatch in lanes:
        axes.barh(
            place, high - low, left=low, height=0.5, color=color, hatch=hatch, edgecolor="white", alpha=0.75
        )
        axes.text(
            high - 60, place, f"to {high:,.0f}", va="center", ha="right", fontsize=7.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip
    axes.text(
        at["asked from"] - 90, 1, f"from {at['asked from']:,.0f}", ha="right", va="center", fontsize=7.5
    )
    axes.axvline(at["seen"], color="black", linestyle=":", linewidth=1.4)
    axes.text(at["seen"] - 80, 2.5, f"quoted: median prompt, {at['seen']:,.0f}", fontsize=7.5, ha="right")
    axes.axvline(at["window"], color="black", linewidth=1)
    axes.text(at["window"] - 60, -0.62, f"window, {at['window']:,.0f}", fontsize=7.5, ha="right")
    axes.set_xticks(range(68_000, 87_000, 4_000))
    axes.set_yticks([2, 1, 0], [f"computed: {name}" for _, name, *_ in lanes])
    axes.set_ylim(-0.75, 2.9)
    axes.set_xlim(start, at["window"] + 500)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f}k")
    axes.set_xlabel("prompt, tokens")
    axes.grid(axis="y", visible=False)
    over = at["seen"] - at["longest feasible"]
    finding(
        figure,
        f"Quoted: summaries were asked for where none fits. The median prompt is {over:,.0f} tokens too long, and "
        f"{failed:g}% of {attempts:,} failed",
    )
    return figure
