"""What rewards pay: by tests passed, and by turns under each shaping."""

import pandas as pd

from t1core.view.style import BLUE, GREEN, ORANGE, VERMILION, Picture, finding, panels, rule, styled

_LOOKS = {"dense": (BLUE, "--", "o"), "ratio": (ORANGE, "-.", "^"), "binary": (GREEN, ":", "s")}
_SHAPED = {"none": (BLUE, "--"), "additive": (ORANGE, "-."), "multiplicative": (GREEN, "-")}


@styled
def figure_reward_kinds(table: pd.DataFrame, *, quoted: pd.DataFrame) -> Picture:
    """Reward by tests passed, a panel a task size, all computed. `table` is analysis.reward_by_passed; `quoted`: total,
    passed, value."""
    totals = sorted(table["total"].unique())
    figure, axes = panels(len(totals), height=3.2, sharey=True)
    for panel, total in zip(axes, totals, strict=True):
        for kind, (color, line, marker) in _LOOKS.items():
            part = table[(table["total"] == total) & (table["kind"] == kind)]
            every = max(1, total // 8)
            panel.plot(
                part["passed"], part["reward"], color=color, linestyle=line, marker=marker, markersize=4,
                markevery=every, label=kind,
            )  # fmt: skip
        mark = quoted[quoted["total"] == total]
        panel.plot(
            mark["passed"], mark["value"], linestyle="", marker="s", markersize=9, markerfacecolor="none",
            color=VERMILION, label="quoted" if total == totals[-1] else None,
        )  # fmt: skip
        panel.set_title(f"a task of {total} tests", fontsize=9, loc="left")
        panel.set_xlabel("tests passed")
    axes[0].set_ylabel("reward")
    axes[0].legend(loc="upper left", title="computed", fontsize=7.5)
    axes[-1].legend(handles=axes[-1].get_lines()[-1:], loc="upper left")
    finding(
        figure,
        "A count pays every test alike, and hard tasks more; the ratio pays a test the less, the more a task has; "
        "binary pays nothing before the last",
    )
    return figure


@styled
def figure_length_shaping(
    curve: pd.DataFrame, *, pays: pd.DataFrame, farmed: tuple[int, int], healthy: tuple[int, int]
) -> Picture:
    """Reward by turns of two counts of passed tests, a panel a shaping. `curve` is reward_by_turns, `pays`
    farming_pays; farmed and healthy: (tests, turns) of the quoted example."""
    figure, axes = panels(3, height=3.4, sharey=True)
    for panel, (kind, (color, line)) in zip(axes, _SHAPED.items(), strict=True):
        for passed, width in ((farmed[0], 2.0), (healthy[0], 1.0)):
            part = curve[(curve["shaping"] == kind) & (curve["passed"] == passed)]
            panel.plot(
                part["turns"],
                part["reward"],
                color=color,
                linestyle=line,
                linewidth=width,
                label=f"{passed} tests",
            )
        row = pays[pays["shaping"] == kind].iloc[0]
        panel.plot([farmed[1]], [row["farmed"]], marker="o", color="black", linestyle="")
        panel.plot(
            [healthy[1]], [row["healthy"]], marker="o", color="black", markerfacecolor="white", linestyle=""
        )
        panel.annotate(
            f"{row['farmed']:.4g}",
            (farmed[1], row["farmed"]),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=8,
        )
        panel.annotate(
            f"{row['healthy']:.4g}",
            (healthy[1], row["healthy"]),
            xytext=(-2, -12),
            textcoords="offset points",
            fontsize=8,
            ha="right",
        )
        rule(panel, row["healthy"], "")
        verdict = "farming pays" if row["farming_pays"] else "farming loses"
        panel.set_title(f"{kind}: {verdict}", fontsize=9, loc="left")
        panel.set_xlabel("turns")
        panel.legend(loc="lower left", title="computed", fontsize=7.5)
    axes[0].set_ylabel("reward of a trial")
    axes[0].set_ylim(0.08, 0.28)
    finding(
        figure,
        f"{farmed[0]} tests farmed over {farmed[1]} turns beat {healthy[0]} at a healthy length under no shaping and "
        "under the additive penalty; the discount alone turns it round, as quoted (constants are ours)",
    )
    return figure
