"""Assertions gained and lost while the mean reward stands still."""

import pandas as pd

from t1core.view.style import BLUE, GREY, VERMILION, Picture, finding, picture, styled

_LOOKS = {"gained": (BLUE, "^"), "lost": (VERMILION, "v"), "unclear": (GREY, "o")}


@styled
def figure_assertions(
    changes: pd.DataFrame,
    *,
    early: tuple[int, int],
    late: tuple[int, int],
    reward: tuple[float, float, float],
) -> Picture:
    """Change of the pass share by kind of assertion. `changes` is analysis.assertion_changes; early and late: first and
    last step of the windows; reward: difference of their mean rewards with its interval."""
    figure, axes = picture(height=5.2)
    ordered = changes.iloc[::-1].reset_index(drop=True)
    for change, (color, marker) in _LOOKS.items():
        part = ordered[ordered["change"] == change]
        axes.hlines(part.index, 100 * part["low"], 100 * part["high"], color=color, alpha=0.4, linewidth=2.5)
        axes.plot(
            100 * part["gain"],
            part.index,
            color=color,
            marker=marker,
            markersize=5,
            linestyle="",
            label=f"measured: {change} ({len(part)})",
        )
    axes.axvline(0, color="#333333", linewidth=0.8)
    axes.set_yticks(ordered.index, ordered["kind"], fontsize=6.5)
    axes.set_ylim(-0.8, len(ordered) - 0.2)
    axes.set_xlabel(
        f"pass share, steps {late[0]} to {late[1]} less steps {early[0]} to {early[1]}, points (95% interval)"
    )
    axes.legend(loc="lower right")
    counts = changes["change"].value_counts()
    moved, chance = counts.get("gained", 0) + counts.get("lost", 0), 0.05 * len(changes)
    verdict = "more than" if moved > 2 * chance else "no more than"
    finding(
        figure,
        f"Between two windows of equal mean reward ({reward[0]:+.3f} [{reward[1]:+.3f}, {reward[2]:+.3f}]) {moved} of "
        f"{len(changes)} kinds of assertion change, {counts.get('lost', 0)} of them for the worse: {verdict} chance "
        f"gives (about {chance:.0f})",
    )
    return figure
