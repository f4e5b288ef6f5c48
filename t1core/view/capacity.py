"""The capacity model: terms of two published plans, expert parallelism, context parallelism, predicted and measured
peaks."""

import pandas as pd

from t1core.view.style import (
    BLUE,
    COMPUTED,
    GREEN,
    GREY,
    MEASURED,
    ORANGE,
    PURPLE,
    QUOTED,
    SKY,
    VERMILION,
    Picture,
    finding,
    panels,
    styled,
)

_TERMS = {
    "weights and gradients": (BLUE, "////"), "expert optimiser": (SKY, "...."), "dense optimiser": (GREEN, "\\\\\\\\"),
    "activations": (ORANGE, "xx"), "logits": (PURPLE, "++"),
}  # fmt: skip


@styled
def figure_plan_terms(
    terms: pd.DataFrame, *, peaks: dict[str, float], limit: float, logits: dict[str, float]
) -> Picture:
    """Terms of each plan stacked, with the quoted peak and the GPU's memory. `terms` is analysis.plan_terms; `peaks`
    and `logits` are quoted, by plan, GiB; a crash is a peak too."""
    figure, axes = panels(1, height=3.6)
    plans = list(dict.fromkeys(terms["plan"]))
    sums = {}
    for place, plan in enumerate(reversed(plans)):
        left = 0.0
        for term, (color, hatch) in _TERMS.items():
            size = float(terms.loc[(terms["plan"] == plan) & (terms["term"] == term), "gib"].iloc[0])
            axes.barh(
                place, size, left=left, height=0.55, color=color, hatch=hatch, edgecolor="white", linewidth=0.5,
                label=f"computed: {term}" if place == 0 else None,
            )  # fmt: skip
            if size > 3.5:
                axes.text(
                    left + size / 2, place, f"{size:.1f}", ha="center", va="center", fontsize=8,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
                )  # fmt: skip
            left += size
        sums[plan] = left
        axes.plot(
            [peaks[plan]] * 2, [place - 0.38, place + 0.38], color=VERMILION, linestyle=":", linewidth=2.4,
            label="quoted: peak" if place == 0 else None,
        )  # fmt: skip
        axes.text(peaks[plan], place + 0.4, f"{peaks[plan]:.1f}", color=VERMILION, fontsize=8, ha="center")
    axes.axvline(limit, color="black", linewidth=1)
    axes.text(
        limit + 0.6,
        -0.62,
        f"quoted: memory of a GPU, {limit:g}",
        fontsize=7,
        rotation=0,
        ha="left",
        va="bottom",
    )
    axes.set_yticks(range(len(plans)), list(reversed(plans)))
    axes.set_ylim(-0.65, len(plans) - 0.35)
    axes.set_xlim(0, 128)
    axes.set_xlabel("GiB of one GPU of the last stage (crash: of an inner stage)")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, fontsize=7)
    told = " and ".join(
        f"{terms.loc[(terms['plan'] == plan) & (terms['term'] == 'logits'), 'gib'].iloc[0]:.1f}"
        for plan in logits
    )
    quoted = " and ".join(f"{value:g}" for value in logits.values())
    finding(
        figure,
        f"Six bytes a logit give the quoted logits ({told} computed, {quoted} quoted, GiB); the plans' other degrees "
        "are not published, so the sums, under our reading, need not meet the quoted peaks",
    )
    return figure


@styled
def figure_expert_parallel(frame: pd.DataFrame, *, num_gpus: int) -> Picture:
    """Optimiser and weights of the experts by degree of expert parallelism; `frame` is expert_parallel_terms."""
    figure, axes = panels(1, height=2.9)
    axes.plot(
        frame["ep"], frame["optimiser_gib"], color=BLUE, label="computed: experts' optimiser states",
        **(COMPUTED | {"marker": "o", "markersize": 4}),
    )  # fmt: skip
    axes.plot(
        frame["ep"], frame["weights_gib"], color=ORANGE, label="computed: weights and gradients",
        **(COMPUTED | {"marker": "^", "markersize": 5, "linestyle": "-."}),
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(frame["ep"], [f"{ep:g}" for ep in frame["ep"]])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"expert parallel ranks, {num_gpus} GPUs train")
    axes.set_ylabel("GiB of one GPU")
    axes.legend(loc="upper right")
    first, last = frame.iloc[0], frame.iloc[-1]
    finding(
        figure,
        f"Expert parallelism does not change the experts' optimiser states ({last['optimiser_gib']:.1f} GiB), as "
        f"quoted; weights and gradients fall from {first['weights_gib']:.0f} to {last['weights_gib']:.0f} GiB",
    )
    return figure


@styled
def figure_context_parallel(quoted: pd.DataFrame, *, ratio: float, measured: pd.DataFrame) -> Picture:
    """Peak of GatedDeltaNet by context parallel ranks over the peak of one. `quoted`: x, value (GiB), ratio of one
    to four; `measured`: tokens,
    slices, peak_over_whole."""
    figure, axes = panels(1, height=3.2)
    ranks = [1, 2, 4, 8]
    axes.plot(ranks, [1 / n for n in ranks], color=GREY, label="computed: 1 / ranks", **COMPUTED)
    whole = quoted.loc[quoted["x"] == 1, "value"].iloc[0]
    axes.plot(
        quoted["x"],
        quoted["value"] / whole,
        color=VERMILION,
        label=f"quoted, {whole:g} GiB at one",
        **(QUOTED | {"markersize": 8}),
    )
    for (tokens, part), marker in zip(measured.groupby("tokens"), ("o", "v"), strict=False):
        axes.plot(
            part["slices"], part["peak_over_whole"], label=f"measured: operator, {tokens:,} tokens, H200",
            **(MEASURED | {"color": BLUE, "marker": marker, "linestyle": "-" if marker == "o" else "", "markersize": 4
        if marker == "o" else 9, "markerfacecolor": BLUE if marker == "o" else "none"}), )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(ranks, [str(n) for n in ranks])
    axes.set_yticks([1, 1 / 2, 1 / 4, 1 / 8], ["1", "1/2", "1/4", "1/8"])
    axes.set_xlabel("context parallel ranks, or slices")
    axes.set_ylabel("peak over the peak of one")
    axes.legend(loc="lower left", fontsize=7.5)
    ours = 1 / measured.loc[measured["slices"] == 4, "peak_over_whole"].max()
    finding(
        figure, f"Four ranks take a quarter of the peak: quoted {ratio:.2f} times less, measured {ours:.2f}"
    )
    return figure


@styled
def figure_predicted_peaks(peaks: pd.DataFrame) -> Picture:
    """Measured peaks against predicted ones, and the residual. `peaks`: predicted_gib, peak_gib, residual_gib, part."""
    figure, (left, right) = panels(2, height=3.1)
    for part, color, marker in (("fitted", GREY, "s"), ("held out", BLUE, "o")):
        rows = peaks[peaks["part"] == part]
        how = {
            "linestyle": "",
            "marker": marker,
            "markersize": 4,
            "color": color,
            "label": f"measured: {part}",
        }
        left.plot(rows["predicted_gib"], rows["peak_gib"], **how)
        right.plot(rows["peak_gib"], 1024 * rows["residual_gib"], **how)
    ends = [peaks["peak_gib"].min() - 2, peaks["peak_gib"].max() + 2]
    left.plot(ends, ends, color="black", label="computed: equal", **COMPUTED)
    left.set_xlabel("predicted peak, GiB")
    left.set_ylabel("measured peak, GiB")
    left.legend(loc="upper left", fontsize=7)
    right.axhspan(
        -102.4, 102.4, color=VERMILION, alpha=0.12, linewidth=0, label="quoted: within 0.1 of one crash"
    )
    right.axhline(0, color="#333333", linewidth=0.8)
    right.set_xlabel("measured peak, GiB")
    right.set_ylabel("predicted less measured, MiB")
    right.legend(loc="upper left", fontsize=7)
    right.set_ylim(-120, 175)
    worst = 1024 * peaks.loc[peaks["part"] == "held out", "residual_gib"].abs().max()
    finding(
        figure,
        f"Seven peaks that were not fitted are predicted within {worst:.0f} MiB of 34 to 65 GiB on one H200",
    )
    return figure
