"""Where a step's time goes, how GPUs are split, how kernels warm up, and what the skim loses."""

import pandas as pd

from t1core.view.style import (
    BLUE,
    COMPUTED,
    GREEN,
    MEASURED,
    MEASURED_BAR,
    ORANGE,
    QUOTED,
    QUOTED_BAR,
    VERMILION,
    Picture,
    finding,
    panels,
    styled,
)


@styled
def figure_steps(steps: pd.DataFrame) -> Picture:
    """Rollout, training and the whole step over the whole step. `steps`: where, rollout, train, step, unit,
    is_quoted."""
    figure, axes = panels(1, height=3.3)
    parts = (("rollout", BLUE, "////"), ("train", GREEN, "...."), ("step", ORANGE, ""))
    for place, row in enumerate(steps.iloc[::-1].itertuples()):
        for offset, (name, color, hatch) in zip((0.27, 0.0, -0.27), parts, strict=True):
            value = getattr(row, name)
            how = (
                QUOTED_BAR
                if row.is_quoted
                else MEASURED_BAR | {"color": color, "hatch": hatch, "edgecolor": "white"}
            )
            axes.barh(place + offset, value / row.step, height=0.24, **how)
            kind = "quoted" if row.is_quoted else "measured"
            axes.text(
                value / row.step + 0.01,
                place + offset,
                f"{name} {value:.1f} {row.unit}, {kind}",
                va="center",
                fontsize=7,
            )
    axes.set_yticks(range(len(steps)), steps["where"].iloc[::-1], fontsize=8)
    axes.set_xlim(0, 1.38)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("share of the step")
    axes.grid(axis="y", visible=False)
    quoted = steps[steps["is_quoted"]].iloc[0]
    own = steps[~steps["is_quoted"]]
    over = " and ".join(f"{row.step / max(row.rollout, row.train):.2f}" for row in own.itertuples())
    finding(
        figure,
        f"Our steps take {over} times their longer side; the quoted step of {quoted['step']:g} min is the sum of its "
        f"sides, {quoted['rollout']:g} and {quoted['train']:g}, not the longer one",
    )
    return figure


@styled
def figure_gpu_split(curve: pd.DataFrame, *, replicas: pd.DataFrame, per_replica: pd.DataFrame) -> Picture:
    """Step time by sampling GPUs (left), quoted rollout time by replicas (right).

    `curve` is analysis.split_curve; `replicas`: x, value quoted; `per_replica`: x, value computed.
    """
    figure, (left, right) = panels(2, height=3.3, width_ratios=(1.5, 1))
    left.plot(curve["sampling"], curve["rollout"], color=BLUE, label="computed: rollout, R / n", **COMPUTED)
    left.plot(
        curve["sampling"],
        curve["train"],
        color=GREEN,
        label="computed: training, C / (G - n)",
        **(COMPUTED | {"linestyle": "-."}),
    )
    left.plot(
        curve["sampling"],
        curve["step"],
        color="black",
        linewidth=2.2,
        alpha=0.45,
        label="computed: step, the longer",
    )
    best = curve[curve["is_best"]].iloc[0]
    left.plot(
        [best["sampling"]],
        [best["step"]],
        marker="*",
        markersize=11,
        color=VERMILION,
        linestyle="",
        label=f"best: {best['sampling']:.0f}",
    )
    left.set_ylim(0, 130)
    left.set_xlabel("GPUs that sample, of 128")
    left.set_ylabel("minutes")
    left.legend(loc="upper center", fontsize=7)
    right.plot(
        per_replica["x"],
        per_replica["value"],
        color="black",
        label="computed: 256 groups\nat 4.35 a minute each",
        **COMPUTED,
    )
    right.plot(
        replicas["x"],
        replicas["value"],
        color=VERMILION,
        label="quoted",
        **(QUOTED | {"linestyle": "", "markersize": 6}),
    )
    right.set_xticks([1, 2, 3, 4])
    right.set_ylim(0, 66)
    right.set_xlabel("replicas that sample")
    right.set_ylabel("rollout, minutes")
    right.legend(loc="upper right", fontsize=7)
    finding(
        figure,
        f"If the quoted 16 and 41 minutes were taken on 64 GPUs each, {best['sampling']:.0f} of 128 should sample and "
        f"a step take {best['step']:.0f} minutes; three replicas take a third of one's time, as computed",
    )
    return figure


@styled
def figure_warm_up(times: pd.DataFrame, *, quoted: tuple[float, float]) -> Picture:
    """Training times of a run's steps on a GPU over the warm time, beside the first and last quoted micro-batch.

    `times`: step, train_s. Between the two quoted values nothing is published, nor how many micro-batches lie between.
    """
    figure, axes = panels(1, height=3.0)
    late = times["train_s"].iloc[len(times) // 2 :].median()
    label = f"measured: training of a step, H200, warm {late:.1f} s"
    axes.plot(times["step"] + 1, times["train_s"] / late, color=BLUE, label=label, **MEASURED)
    first, last = quoted
    label = f"quoted: a first micro-batch of {first:g} s, {last:g} s warm"
    axes.plot(
        [1], [first / last], color=VERMILION, label=label, **(QUOTED | {"linestyle": "", "markersize": 6})
    )
    axes.axhline(1, color="#333333", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    axes.minorticks_off()
    axes.set_xticks([1, 5, 10, 15, 20])
    axes.set_xlabel("step (measured), micro-batch (quoted)")
    axes.set_ylabel("time over the warm time")
    axes.legend(loc="upper right", fontsize=7.5)
    ratio = times["train_s"] / late
    warm_at = int(times.loc[ratio <= 1.1, "step"].iloc[0]) + 1
    finding(
        figure,
        f"Our first step on an H200 takes {ratio.iloc[0]:.1f} times a warm one, step {warm_at} no longer than one; "
        f"quoted, {first / last:.0f} times: times that fall are compilation, not a hang",
    )
    return figure


@styled
def figure_skim(lost: pd.DataFrame, *, quoted: dict[str, float], overall: float) -> Picture:
    """Share of each family's trials that the skim lost, with the quoted share of one step. `lost` is lost_by_family."""
    figure, axes = panels(1, height=4.3)
    ordered = lost.iloc[::-1]
    places = range(len(ordered))
    axes.hlines(
        places, 100 * ordered["low"].clip(lower=0), 100 * ordered["high"], color=BLUE, alpha=0.4, linewidth=3
    )
    axes.plot(
        100 * ordered["lost_frac"],
        places,
        color=BLUE,
        label="measured: family, 95% interval",
        **(MEASURED | {"linestyle": "", "markersize": 4}),
    )
    axes.axvline(100 * overall, color="black", linewidth=1.0, label=f"measured: all, {overall:.1%}")
    share = 100 * quoted["cut"] / quoted["launched"]
    axes.axvline(
        share,
        color=VERMILION,
        linestyle=":",
        label=f"quoted: {quoted['cut']:g} of {quoted['launched']:g}, {share:.1f}%",
    )
    axes.set_yticks(
        places, [f"{row.family} ({row.turns:.1f} turns)" for row in ordered.itertuples()], fontsize=7
    )
    axes.set_xlabel("trials that the skim lost, %")
    axes.set_xlim(left=0)
    axes.legend(loc="lower right")
    apart = int(((lost["low"] > overall) | (lost["high"] < overall)).sum())
    top, bottom = lost.iloc[0], lost.iloc[-1]
    finding(
        figure,
        f"The skim does not lose at random: {top['family']} loses {top['lost_frac']:.0%}, {bottom['family']} "
        f"{bottom['lost_frac']:.0%}; {apart} of {len(lost)} families lie clear of the mean",
    )
    return figure
