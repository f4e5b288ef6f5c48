"""Our reward, turns and tokens by step with the quoted ones beside them."""

import pandas as pd

from t1core.view.style import (
    BLUE,
    MEASURED,
    QUOTED,
    VERMILION,
    Picture,
    finding,
    panels,
    picture,
    styled,
)

_RUNS = ((BLUE, "-", "o"), ("#56B4E9", (0, (5, 1)), "v"), ("#009E73", "-.", "P"))


@styled
def figure_reward_beside_quoted(
    runs: dict[str, pd.DataFrame], *, quoted: pd.DataFrame, plateau: tuple[float, float]
) -> Picture:
    """Mean reward by step. `runs`: reward_curve by name; `quoted`: x and value; plateau: its quoted ends."""
    figure, axes = picture(height=3.8)
    end = quoted["x"].max()
    axes.fill_between([end, 110], *plateau, color=VERMILION, alpha=0.18, linewidth=0, label="quoted: plateau")
    axes.plot(quoted["x"], quoted["value"], color=VERMILION, label="quoted: T1, 122B, T1-15k", **QUOTED)
    for (name, curve), (color, line, marker) in zip(runs.items(), _RUNS, strict=False):
        axes.vlines(curve["step"], curve["low"], curve["high"], color=color, alpha=0.18, linewidth=2)
        axes.plot(
            curve["step"], curve["reward"], label=f"measured: {name}",
            **(MEASURED | {"color": color, "linestyle": line, "marker": marker}),
        )  # fmt: skip
    axes.set_ylim(0, 0.52)
    axes.set_xlim(-2, 112)
    axes.secondary_yaxis("right", functions=(lambda r: 20 * r, lambda p: p / 20)).set_ylabel(
        "tests passed a trial"
    )
    axes.set_xlabel("training step")
    axes.set_ylabel("mean reward (tests passed / 20)")
    axes.legend(loc="upper left", ncols=2, fontsize=7.5)
    gains = "; ".join(
        f"{name} {curve['reward'].iloc[:5].mean():.2f} to {curve['reward'].iloc[-5:].mean():.2f}"
        for name, curve in runs.items()
    )
    finding(
        figure,
        f"Ours rise and flatten within ten steps ({gains}, five steps each) as the quoted curve does within fifty; "
        "other tasks and another scale, so only the shapes compare",
    )
    return figure


@styled
def figure_turns_and_tokens(
    runs: dict[str, pd.DataFrame], *, turns: pd.DataFrame, tokens: pd.DataFrame
) -> Picture:
    """Turns (left) and tokens (right) a training trial by step. `runs`: step, turns, tokens; quoted: x and value."""
    figure, axes = panels(2, height=3.3)
    for panel, quoted, column, label in (
        (axes[0], turns, "turns", "turns a trial"), (axes[1], tokens, "tokens", "tokens a trial"),
    ):  # fmt: skip
        panel.plot(
            quoted["x"], quoted["value"], color=VERMILION, label="quoted: T1, first and last", **QUOTED
        )
        for (name, frame), (color, line, marker) in zip(runs.items(), _RUNS, strict=False):
            panel.plot(
                frame["step"], frame[column], label=f"measured: {name}",
                **(MEASURED | {"color": color, "linestyle": line, "marker": marker, "markersize": 2}),
            )  # fmt: skip
        panel.set_yscale("log")
        panel.set_xlabel("training step")
        panel.set_ylabel(f"{label} (logarithmic)")
    axes[0].set_ylim(1, 60)
    axes[0].set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes[1].set_ylim(100, 90_000)
    axes[0].legend(loc="center right", fontsize=7, bbox_to_anchor=(1.0, 0.5))
    growth = turns["value"].iloc[-1] / turns["value"].iloc[0]
    told = " and ".join(
        f"{frame['turns'].iloc[-5:].mean() / frame['turns'].iloc[:5].mean():.1f}" for frame in runs.values()
    )
    finding(
        figure,
        f"Quoted turns grow {growth:.1f} times while the reward rises; ours, on tasks of two to four turns, {told} "
        "times",
    )
    return figure
