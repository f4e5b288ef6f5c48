"""Token and routing fidelity beside the quoted values: the gap, the audit, what routes take, what a gap adds up to."""

import pandas as pd

from t1core.view.style import (
    BLUE,
    COMPUTED,
    COMPUTED_BAR,
    GREY,
    MEASURED,
    MEASURED_BAR,
    ORANGE,
    QUOTED_BAR,
    VERMILION,
    Picture,
    finding,
    panels,
    styled,
)


@styled
def figure_gap_beside_quoted(runs: dict[str, pd.DataFrame], *, quoted: dict[str, float]) -> Picture:
    """Our gap by step, replayed and free (left), and both means beside the quoted ones (right).

    `runs`: analysis.logprob_gap by name; `quoted`: values of topic gap.
    """
    figure, (left, right) = panels(2, height=3.6, width_ratios=(1.6, 1))
    left.axhspan(
        quoted["band_low"],
        quoted["band_high"],
        color=VERMILION,
        alpha=0.2,
        linewidth=0,
        label="quoted: band over 112 steps",
    )
    left.axhline(
        quoted["without"], color=VERMILION, linestyle=":", linewidth=1.3, label="quoted: without TITO and R3"
    )
    for (name, frame), (marker, line) in zip(runs.items(), (("o", "-"), ("v", (0, (4, 1)))), strict=False):
        left.plot(
            frame["step"], frame["replayed"], label=f"measured: {name}, replayed",
            **(MEASURED | {"color": BLUE, "marker": marker, "linestyle": line, "markersize": 2.5}),
        )  # fmt: skip
        left.plot(
            frame["step"], frame["free"], label=f"measured: {name}, free",
            **(MEASURED | {"color": ORANGE, "marker": marker, "linestyle": line, "markersize": 3.5, "markerfacecolor":
        "white"}), )  # fmt: skip
    left.set_yscale("log")
    left.set_ylim(1e-4, 0.4)
    left.set_xlabel("training step")
    left.set_ylabel("mean |trainer - rollout| log-prob, nats")
    left.legend(loc="upper center", fontsize=6.5, ncols=2, columnspacing=1.0, handlelength=1.6)
    means = {name: (frame["free"].mean(), frame["replayed"].mean()) for name, frame in runs.items()}
    bars = [("quoted", quoted["without"], quoted["with"]), *((name, *pair) for name, pair in means.items())]
    for place, (name, free, replayed) in enumerate(reversed(bars)):
        is_quoted = name == "quoted"
        for offset, value, color in ((0.18, free, ORANGE), (-0.18, replayed, BLUE)):
            how = QUOTED_BAR | {"edgecolor": VERMILION} if is_quoted else MEASURED_BAR | {"color": color}
            right.barh(place + offset, value / free, height=0.32, **how)
            right.text(value / free + 0.02, place + offset, f"{value:.4f}", va="center", fontsize=7)
    right.set_yticks(range(len(bars)), [name for name, *_ in reversed(bars)], fontsize=7)
    right.set_xlim(0, 1.35)
    right.set_xlabel("gap over the gap without\n(above: without; below: with)")
    right.grid(axis="y", visible=False)
    saved = ", ".join(f"{1 - replayed / free:.0%} ({name})" for name, free, replayed in bars[1:])
    finding(
        figure,
        f"Replaying routes takes {saved} off the gap; quoted, with TITO too, "
        f"{1 - quoted['with'] / quoted['without']:.0%}. Ours, of a model of 1.4M parameters, is more than ten times "
        "smaller",
    )
    return figure


@styled
def figure_audit_beside_quoted(audit: pd.DataFrame) -> Picture:
    """Audit of positions as bars. `audit`: what, quoted, measured, percent; one row a part."""
    figure, axes = panels(1, height=2.9)
    for place, row in enumerate(audit.iloc[::-1].itertuples()):
        axes.barh(place + 0.18, row.quoted, height=0.32, **QUOTED_BAR)
        axes.barh(place - 0.18, row.measured, height=0.32, color=BLUE, **MEASURED_BAR)
        for offset, value, word in ((0.18, row.quoted, "quoted"), (-0.18, row.measured, "measured")):
            axes.text(max(value, 0) + 1, place + offset, f"{value:.4g}% {word}", va="center", fontsize=8)
    axes.set_yticks(range(len(audit)), audit["what"].iloc[::-1])
    axes.set_xlim(0, 132)
    axes.set_xlabel("share, %")
    axes.grid(axis="y", visible=False)
    changed = audit.loc[audit["what"].str.startswith("retokenised"), "quoted"].iloc[0]
    finding(
        figure,
        f"No drift in the loss region, quoted and measured; with a harness that keeps ids ours has no retokenised "
        f"position either, where {changed:g}% are quoted",
    )
    return figure


@styled
def figure_route_bytes(sizes: pd.DataFrame) -> Picture:
    """Bytes of a token's routes by encoding. `sizes`: encoding, bytes, kind (quoted, measured or computed)."""
    figure, axes = panels(1, height=2.6)
    looks = {
        "quoted": QUOTED_BAR, "measured": MEASURED_BAR | {"color": BLUE}, "computed": COMPUTED_BAR | {"color": GREY},
    }  # fmt: skip
    for place, row in enumerate(sizes.iloc[::-1].itertuples()):
        axes.barh(place, row.bytes, height=0.6, **looks[row.kind])
        axes.text(row.bytes + 15, place, f"{row.bytes:,.0f} B, {row.kind}", va="center", fontsize=8)
    axes.set_yticks(range(len(sizes)), sizes["encoding"].iloc[::-1])
    axes.set_xlim(0, sizes["bytes"].max() * 1.3)
    axes.set_xlabel("bytes of a token's routes, 48 layers, 8 of 256 experts")
    axes.grid(axis="y", visible=False)
    packed, quoted = sizes.loc[sizes["encoding"] == "packed", "bytes"].iloc[0], sizes["bytes"].max()
    finding(
        figure,
        f"Packed routes take {packed / quoted:.0%} of what is quoted, within 10% of the least there is",
    )
    return figure


@styled
def figure_gap_adds_up(frame: pd.DataFrame, *, clip: float, at: dict[str, float]) -> Picture:
    """What a gap a token adds up to over a trajectory. `frame`: tokens, coherent, independent (nats); clip: log(1 +
    eps).

    `at`: tokens, coherent and independent at the quoted horizon.
    """
    figure, axes = panels(1, height=3.2)
    axes.plot(
        frame["tokens"], frame["coherent"], color=ORANGE, label="computed: all gaps of one sign", **COMPUTED
    )
    axes.plot(
        frame["tokens"],
        frame["independent"],
        color=BLUE,
        label="computed: signs independent",
        **(COMPUTED | {"linestyle": "-."}),
    )
    axes.axhline(clip, color="#333333", linewidth=0.8)
    axes.annotate("PPO's clip, log 1.2", (1.2, clip), xytext=(0, 3), textcoords="offset points", fontsize=7)
    axes.axvline(
        at["tokens"], color=VERMILION, linestyle=":", label=f"quoted: {at['tokens']:,.0f} tokens a trajectory"
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("tokens")
    axes.set_ylabel("log-ratio of a whole trajectory, nats")
    axes.legend(loc="upper left", fontsize=7.5)
    finding(
        figure,
        f"The quoted gap over the quoted horizon is {at['coherent']:.0f} nats if its signs agree and "
        f"{at['independent']:.1f} if they are independent: both far beyond the clip",
    )
    return figure
