"""Where gains lie: by difficulty and domain, quoted and ours, and cases in numbers."""

import pandas as pd

from t1core.view.style import (
    BLUE,
    MEASURED_BAR,
    ORANGE,
    QUOTED_BAR,
    VERMILION,
    Picture,
    finding,
    panels,
    styled,
)

_NAMES = {"base": "base", "sft": "SFT", "t1": "T1"}
_STAGES = (("base", "#999999", "s"), ("sft", ORANGE, "^"), ("t1", VERMILION, "o"))


@styled
def figure_difficulty(quoted: pd.DataFrame, *, measured: pd.DataFrame) -> Picture:
    """Solved share by difficulty at three stages (left, quoted); ours by number of tests, before and after (right).

    `quoted`: level, stage, value; `measured` is analysis.solved_by of level, for one split.
    """
    figure, (left, right) = panels(2, height=3.4)
    levels = ["easy", "medium", "hard"]
    for stage, color, marker in _STAGES:
        part = quoted[quoted["stage"] == stage].set_index("level")["value"].reindex(levels)
        left.plot(
            range(3),
            part,
            color=color,
            marker=marker,
            linestyle=":",
            markerfacecolor="white",
            markersize=6,
            label=f"quoted: {_NAMES[stage]}",
        )
    left.set_xticks(range(3), levels)
    left.set_ylabel("Terminal-Bench 2.1 tasks solved, %")
    ours = ["few", "middle", "many"]
    for when, color, marker, shift in (("before", "#999999", "s", -0.06), ("after", BLUE, "o", 0.06)):
        part = measured[measured["when"] == when].set_index("level").reindex(ours)
        places = [place + shift for place in range(3)]
        right.vlines(
            places,
            100 * part["low"].clip(lower=0),
            100 * part["high"].clip(upper=1),
            color=color,
            alpha=0.4,
            linewidth=3,
        )
        right.plot(
            places,
            100 * part["solved"],
            color=color,
            marker=marker,
            linestyle="-",
            label=f"measured: {when} training",
        )
    right.set_xticks(range(3), ["few tests", "middle", "many tests"])
    right.set_ylabel("held-out practice tasks solved, %")
    for panel in (left, right):
        panel.set_ylim(-4, 104)
        panel.set_xlim(-0.3, 2.3)
    left.legend(loc="lower left", fontsize=7.5)
    right.legend(loc="upper right", fontsize=7.5)
    gain = {level: quoted[quoted["level"] == level].set_index("stage")["value"] for level in levels}
    told = ", ".join(f"{level} {gain[level]['t1'] - gain[level]['sft']:+.0f}" for level in levels)
    mine = measured.pivot(index="level", columns="when", values="solved").reindex(ours)
    own = ", ".join(f"{100 * (row.after - row.before):+.0f}" for row in mine.itertuples())
    finding(
        figure,
        f"Quoted: RL gains on tasks of middle difficulty ({told} points). Ours, by few, middle and many tests: {own}",
    )
    return figure


@styled
def figure_domains(quoted: pd.DataFrame, *, families: pd.DataFrame) -> Picture:
    """Quoted domains (left: label, value, tasks, model) and our families' reward, first and last quarter (right)."""
    figure, (left, right) = panels(2, height=4.0, width_ratios=(1, 1.2))
    ordered = quoted.iloc[::-1].reset_index(drop=True)
    for place, row in enumerate(ordered.itertuples()):
        edge = VERMILION if row.model == "T1" else "#333333"
        left.barh(place, row.value, height=0.65, **(QUOTED_BAR | {"edgecolor": edge}))
        left.text(row.value + 2, place, f"{row.value:g}", va="center", fontsize=7)
    left.set_yticks(
        range(len(ordered)),
        [f"{row.label}, {row.tasks:.0f} tasks:\n{row.model}" for row in ordered.itertuples()],
        fontsize=7,
    )
    left.set_xlim(0, 125)
    left.set_xlabel("tasks solved, % (quoted)")
    left.grid(axis="y", visible=False)
    mine = families.dropna(subset=["reward_first", "reward_last"]).iloc[::-1].reset_index(drop=True)
    right.hlines(mine.index, mine["reward_first"], mine["reward_last"], color="#bbbbbb", linewidth=2)
    right.plot(
        mine["reward_first"],
        mine.index,
        linestyle="",
        marker="o",
        markerfacecolor="white",
        color=BLUE,
        label="measured: first quarter",
    )
    right.plot(
        mine["reward_last"], mine.index, linestyle="", marker="o", color=BLUE, label="measured: last quarter"
    )
    right.set_yticks(mine.index, mine["family"], fontsize=7)
    right.set_xlabel("mean reward of a family")
    right.set_xlim(right=1.6 * right.get_xlim()[1])  # room for the legend beside the dots
    right.legend(loc="lower right", fontsize=7)
    rose = int((mine["reward_last"] > mine["reward_first"]).sum())
    finding(
        figure,
        f"Quoted domains have 3 to 9 tasks, too few to tell models apart; of our {len(mine)} families {rose} earn "
        "more in the last quarter of steps than in the first",
    )
    return figure


@styled
def figure_cases(quoted: pd.DataFrame, *, ours: pd.DataFrame) -> Picture:
    """Turns, commands and repetition of quoted trials and of ours. Frames: trial, solved, turns, commands, repeated
    (%)."""
    figure, axes = panels(3, height=3.0, sharey=True)
    both = pd.concat([quoted.assign(kind="quoted"), ours.assign(kind="measured")], ignore_index=True).iloc[
        ::-1
    ]
    both = both.reset_index(drop=True)
    for panel, (column, label) in zip(
        axes,
        (("turns", "turns"), ("commands", "commands"), ("repeated", "commands repeated, %")),
        strict=True,
    ):
        for place, row in both.iterrows():
            how = QUOTED_BAR if row["kind"] == "quoted" else MEASURED_BAR | {"color": BLUE}
            panel.barh(place, row[column], height=0.6, **how)
            panel.text(row[column], place, f" {row[column]:.3g}", va="center", fontsize=7.5)
        panel.set_xlim(0, both[column].max() * 1.3 + 1)
        panel.set_xlabel(label)
        panel.grid(axis="y", visible=False)
    axes[0].set_yticks(
        both.index,
        [
            f"{row.trial}, {'solved' if row.solved else 'not solved'}\n({row.kind})"
            for row in both.itertuples()
        ],
        fontsize=7,
    )
    finding(
        figure,
        "Turns, commands and repetition do not tell a solved trial: in the quoted pairs each is larger for the solved "
        "one once and smaller once",
    )
    return figure
