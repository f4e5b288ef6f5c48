"""What a step costs: wall time by side, processor time by part."""

import pandas as pd

from t1core.view.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SERIES,
    Picture,
    finding,
    nothing_to_show,
    picture,
    styled,
)


@styled
def figure_time_split(frame: pd.DataFrame) -> Picture:
    """The mean step as two lanes, rollout and training side by side, then the barrier.

    `frame` is analysis.time_split of a run; steps without a training side are left out.
    """
    figure, axes = picture(height=2.3)
    both = frame.dropna(subset=["total_s", "rollout_s", "train_s"])
    if both.empty:
        nothing_to_show(axes, "no step with both sides yet")
        return figure
    mean = both.mean()
    barrier_s = 0.0 if pd.isna(mean["barrier_s"]) else float(mean["barrier_s"])
    sides_s = max(mean["rollout_s"], mean["train_s"])
    for lane, (name, color) in enumerate((("train", GREEN), ("rollout", BLUE))):
        axes.barh(lane, mean[f"{name}_s"], color=color, height=0.6)
        axes.text(
            mean[f"{name}_s"] / 2, lane, f"{mean[f'{name}_s']:.1f} s", ha="center", va="center", color="white"
        )
    axes.barh([0, 1], barrier_s, left=sides_s, color=ORANGE, height=0.6, hatch="//", edgecolor="white")
    axes.set_yticks([0, 1], ["training", "rollout"])
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("wall time, s (measured: mean over steps; hatched: barrier)")
    longer = "rollout" if mean["rollout_s"] >= mean["train_s"] else "training"
    finding(
        figure,
        f"A step takes {mean['total_s']:.1f} s; {longer} is the longer side, "
        f"{sides_s:.1f} s, and the barrier adds {barrier_s:.1f} s",
    )
    return figure


@styled
def figure_cpu_budget(table: pd.DataFrame) -> Picture:
    """CPU seconds of a mean step by part; `table` is analysis.cpu_budget of a run."""
    figure, axes = picture(height=2.6)
    if table["cpu_s_per_step"].isna().all():
        nothing_to_show(axes, "no CPU times recorded yet")
        return figure
    shown = table.iloc[::-1]
    colors = [
        GREY if part == "unused" else SERIES[index]
        for index, part in zip(shown.index, shown["part"], strict=True)
    ]
    bars = axes.barh(shown["part"], shown["cpu_s_per_step"], color=colors, height=0.65)
    for bar, part, share in zip(bars, shown["part"], shown["share"], strict=True):
        bar.set_hatch("//" if part == "unused" else "")
        bar.set_edgecolor("white")
        seconds = bar.get_width()
        axes.annotate(
            f"{seconds:.1f} s, {share:.0%}", (max(seconds, 0), bar.get_y() + bar.get_height() / 2), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=8,
        )  # fmt: skip
    axes.margins(x=0.18)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("CPU seconds a step (measured: mean over steps; hatched: computed rest)")
    used = table[table["part"] != "unused"].set_index("part")["cpu_s_per_step"]
    largest = used.idxmax()
    finding(
        figure,
        f"A step costs {used.sum():.1f} CPU s of {table['cpu_s_per_step'].sum():.1f} on offer; "
        f"{largest} takes most, {used[largest] / used.sum():.0%} of what is used",
    )
    return figure
