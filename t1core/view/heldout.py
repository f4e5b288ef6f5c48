"""Held-out tasks before and after training, split by split."""

import math

import pandas as pd

from t1core.view.style import BLUE, GREY, Picture, finding, nothing_to_show, picture, styled


@styled
def figure_heldout(table: pd.DataFrame) -> Picture:
    """Solved rate before (hollow) and after (filled) by split; `table` is analysis.heldout_gain of a run."""
    figure, axes = picture(height=1.5 + 0.5 * max(1, len(table)))
    if table.empty:
        nothing_to_show(axes, "needs an evaluation before training and one after")
        return figure
    for place, row in enumerate(table.iloc[::-1].itertuples()):
        axes.annotate(
            "", (row.solved_after, place), xytext=(row.solved_before, place),
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 2},
        )  # fmt: skip
        before = axes.scatter(row.solved_before, place, s=45, facecolor="white", edgecolor=BLUE, zorder=3)
        after = axes.scatter(row.solved_after, place, s=45, color=BLUE, zorder=4)
    axes.legend([before, after], ["measured: before training", "measured: after"], loc="best")
    labels = [f"{row.split}\n({row.tasks} tasks)" for row in table.iloc[::-1].itertuples()]
    axes.set_yticks(range(len(table)), labels)
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("tasks solved (every test passed), one trial a task")
    finding(figure, "Held-out tasks solved: " + "; ".join(_gain(row) for row in table.itertuples()))
    return figure


def _gain(row: object) -> str:
    interval = "" if math.isnan(row.low) else f" [{100 * row.low:+.0f}, {100 * row.high:+.0f}]"
    return f"{row.split} {100 * row.solved_gain:+.0f} points{interval}"
