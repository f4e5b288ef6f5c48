"""Explained variance cold and warm, and learning rates: quoted values beside a run of ours."""

import pandas as pd

from t1core.view.style import (
    BLUE,
    COMPUTED,
    MEASURED,
    ORANGE,
    QUOTED,
    QUOTED_BAR,
    VERMILION,
    Picture,
    finding,
    panels,
    rule,
    styled,
)


@styled
def figure_cold_and_warm(frame: pd.DataFrame, *, quoted: dict[str, float], noise: pd.DataFrame) -> Picture:
    """Explained variance by step on an axis that shows 1 and -40 (symmetric logarithmic).

    `frame` is analysis.explained_variance of a run of ours, `quoted` the values of topic ev, `noise`
    analysis.value_noise.
    """
    figure, (left, right) = panels(2, height=3.9, width_ratios=(1.7, 1))
    left.plot(
        [0], [quoted["cold"]], color=VERMILION,
        label=f"quoted: cold, start; below 0 in {quoted['cold_negative']:g} of {quoted['cold_steps']:g} steps",
        **(QUOTED | {"linestyle": "", "markersize": 6}),
    )  # fmt: skip
    left.fill_between(
        [10, 112],
        quoted["warm_low"],
        quoted["warm_high"],
        color=ORANGE,
        alpha=0.3,
        linewidth=0,
        label="quoted: warm, plateau",
    )
    left.plot(
        [0],
        [quoted["warm_start"]],
        color=ORANGE,
        label="quoted: warm, start",
        **(QUOTED | {"marker": "D", "linestyle": ""}),
    )
    known = frame.dropna(subset=["critic"])
    left.plot(known["step"], known["critic"], color=BLUE, label="measured: ours, warm", **MEASURED)
    left.set_yscale("symlog", linthresh=1)
    left.set_ylim(-60, 1.15)
    left.set_yticks([-30, -10, -3, -1, -0.5, 0, 0.5, 1], ["-30", "-10", "-3", "-1", "-0.5", "0", "0.5", "1"])
    left.minorticks_off()
    rule(left, 0.0, "")
    left.set_xlabel("training step")
    left.set_ylabel("explained variance (logarithmic below -1)")
    left.legend(loc="lower right", fontsize=7)
    right.plot(
        noise["noise_over_return_sd"],
        noise["explained_variance"],
        color="black",
        label="computed",
        **COMPUTED,
    )
    at = noise.loc[(noise["explained_variance"] - quoted["cold"]).abs().idxmin()]
    right.plot(
        [at["noise_over_return_sd"]],
        [quoted["cold"]],
        color=VERMILION,
        label="quoted: cold",
        **(QUOTED | {"linestyle": ""}),
    )
    right.set_xlabel("an untrained head's spread\nover the returns' spread")
    right.set_ylabel("explained variance")
    right.legend(loc="lower left", fontsize=7)
    last = known["critic"].iloc[-max(1, len(known) // 4) :].mean()
    finding(
        figure,
        f"Warm critics start near 0: quoted {quoted['warm_low']:g} to {quoted['warm_high']:g} at last, ours "
        f"{last:.2f}. The quoted cold start, {quoted['cold']:g}, is a head whose values vary "
        f"{at['noise_over_return_sd']:.1f} times as much as returns",
    )
    return figure


@styled
def figure_learning_rates(points: pd.DataFrame, *, first_positive: tuple[float, float]) -> Picture:
    """Quoted explained variance of a 27B model by the critic's rate over the actor's. `points`: x, value."""
    figure, (left, right) = panels(2, height=2.7)
    left.plot(points["x"], points["value"], color=VERMILION, label="quoted: 27B", **QUOTED)
    for row in points.itertuples():
        left.annotate(
            f"{row.value:g}",
            (row.x, row.value),
            xytext=(0, 7),
            textcoords="offset points",
            fontsize=8,
            ha="center",
        )
    left.set_yscale("symlog", linthresh=1)
    left.set_yticks([-39, -10, -1, 0, 1], ["-39", "-10", "-1", "0", "1"])
    left.minorticks_off()
    left.set_xlim(8, 25)
    left.set_ylim(-60, 1.5)
    left.set_xlabel("critic's learning rate over the actor's")
    left.set_ylabel("explained variance")
    left.legend(loc="lower right")
    right.barh([1, 0], first_positive, height=0.5, **QUOTED_BAR)
    for place, step in zip((1, 0), first_positive, strict=True):
        right.text(step + 1, place, f"step {step:g}", va="center", fontsize=8)
    right.set_yticks([1, 0], ["lower rate", "higher rate"])
    right.set_xlim(0, 62)
    right.set_xlabel("first step with explained variance above 0")
    right.grid(axis="y", visible=False)
    finding(
        figure,
        "Quoted, 27B: a higher rate of the critic makes explained variance positive sooner, and the reward stays as "
        "it was; no run of ours compares rates",
    )
    return figure
