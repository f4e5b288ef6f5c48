"""What a benchmark of so few tasks can show."""

import pandas as pd

from t1core.view.style import BLUE, GREEN, ORANGE, Picture, finding, panels, styled

_LOOKS = {1: (ORANGE, ":"), 3: (BLUE, "--"), 5: (GREEN, "-.")}


@styled
def figure_noise(table: pd.DataFrame, *, curve: pd.DataFrame, tasks: int, gains: dict[str, float]) -> Picture:
    """Standard error by attempts (left) and the chance to see a gain (right).

    `table` and `curve` are analysis.noise_table and power_curve; `gains` names quoted gains, as shares.
    """
    figure, (left, right) = panels(2, height=3.5, width_ratios=(1, 1.25))
    for share, (color, marker) in zip(
        sorted(table["between_share"].unique()), ((BLUE, "o"), (ORANGE, "^"), (GREEN, "v")), strict=True
    ):
        part = table[table["between_share"] == share]
        label = "all tasks alike" if share == 0 else f"{share:.0%} of the variance between tasks"
        left.plot(
            part["attempts"],
            100 * part["se_fixed"],
            color=color,
            linestyle="--",
            marker=marker,
            markersize=4,
            label=label,
        )
    left.set_xticks(sorted(table["attempts"].unique()))
    left.set_ylim(bottom=0)
    left.set_xlabel("attempts a task")
    left.set_ylabel("standard error, points")
    left.legend(loc="lower left", title="computed: these tasks", fontsize=7, title_fontsize=7)
    for attempts, part in curve.groupby("attempts"):
        color, line = _LOOKS[attempts]
        label = f"{attempts} attempt{'s' if attempts > 1 else ''} a task"
        right.plot(100 * part["gain"], part["power"], color=color, linestyle=line, label=label)
    surest = curve[curve["attempts"] == curve["attempts"].max()]
    for name, gain in gains.items():
        right.axvline(100 * gain, color="#555555", linewidth=0.8, linestyle=":")
        is_low = surest.loc[(surest["gain"] - gain).abs().idxmin(), "power"] < 0.5
        right.annotate(
            f"quoted: {name}", (100 * gain, 0.97 if is_low else 0.03), rotation=90, fontsize=7, ha="right",
            va="top" if is_low else "bottom", xytext=(-1, 0), textcoords="offset points", color="#333333",
        )  # fmt: skip
    right.set_ylim(0, 1.02)
    right.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    right.set_xlabel("true gain, points")
    right.set_ylabel("chance to see it at the 5% level")
    right.legend(loc="lower right", title="computed", fontsize=7, title_fontsize=7)
    one, three = (table[(table["between_share"] == 0) & (table["attempts"] == k)].iloc[0] for k in (1, 3))
    finding(
        figure,
        f"At {tasks} tasks a score's standard error is {100 * one['se_fixed']:.1f} points for one attempt and "
        f"{100 * three['se_fixed']:.1f} for three; only gains of {100 * one['smallest_gain']:.0f} and "
        f"{100 * three['smallest_gain']:.0f} points are seen 4 times in 5",
    )
    return figure
