"""The routing gap: how far trainer and engine differ by depth and precision, what replay takes away, what it leaves."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from t1core.analysis.routing_gap import AHEAD, SAMPLED, TAUS, flips_by_layer, replay_effect, tails
from t1core.view.style import BLUE, GREEN, GREY, MEASURED, ORANGE, Picture, finding, styled

_FREE = {"linestyle": (0, (4, 1)), "marker": "^"}
_PRECISIONS = {("bf16", "bf16"): BLUE, ("bf16", "fp32"): ORANGE, ("fp32", "fp32"): GREEN}


@styled
def figure_routing_gap(frame: pd.DataFrame) -> Picture:
    """Four panels of a measured frame (campaign.routing_gap): gap by depth, flips by layer, tail, stale weights."""
    figure = Picture(figsize=(6.6, 6.2))
    (by_depth, by_layer), (tail, stale) = figure.subplots(2, 2)
    long = frame[frame["horizon"] == "long"]
    own = long[long["model"] != "policy"]
    _by_depth(by_depth, replay_effect(own[own["weights"] == SAMPLED]))
    deepest = own[(own["model"] == "experts") & (own["num_layers"] == own["num_layers"].max())]
    _by_layer(by_layer, flips_by_layer(deepest[deepest["weights"] == SAMPLED]))
    _tail(tail, tails(deepest[deepest["weights"] == SAMPLED]))
    _stale(stale, replay_effect(deepest))
    finding(figure, _title(replay_effect(deepest), flips=deepest))
    return figure


def _by_depth(axes: Axes, table: pd.DataFrame) -> None:
    for (engine, trainer), color in _PRECISIONS.items():
        part = table[(table["engine"] == engine) & (table["trainer"] == trainer)]
        experts = part[part["model"] == "experts"].sort_values("num_layers")
        dense = part[part["model"] == "dense"].sort_values("num_layers")
        label = f"{engine} engine, {trainer} trainer"
        axes.plot(experts["num_layers"], experts["replayed"], color=color, label=label, **MEASURED)
        axes.plot(experts["num_layers"], experts["free"], color=color, **(MEASURED | _FREE))
        axes.plot(dense["num_layers"], dense["free"], color=color, linestyle="", marker="x")
    axes.set_yscale("log")
    axes.set_xticks(sorted(table["num_layers"].unique()))
    axes.set_xlabel("layers (line: replayed, dashes: free, x: dense)")
    axes.set_ylabel("measured mean |d log p|, nats")
    axes.legend(loc="best", fontsize=6)


def _by_layer(axes: Axes, flips: pd.DataFrame) -> None:
    for (engine, trainer), color in _PRECISIONS.items():
        part = flips[(flips["engine"] == engine) & (flips["trainer"] == trainer)].sort_values("layer")
        axes.plot(part["layer"] + 1, 100 * part["flip_frac"], color=color, **MEASURED)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("layer of the deepest model")
    axes.set_ylabel("measured flips, % of choices")


def _tail(axes: Axes, shares: pd.DataFrame) -> None:
    for (engine, trainer), color in _PRECISIONS.items():
        part = shares[(shares["engine"] == engine) & (shares["trainer"] == trainer) & (shares["share"] > 0)]
        for routing, how in (("replayed", {}), ("free", _FREE)):
            line = part[part["routing"] == routing]
            axes.plot(line["tau"] - 1, line["share"], color=color, **(MEASURED | how))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([tau - 1 for tau in TAUS], [f"{tau:g}" for tau in TAUS], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("tau (line: replayed, dashes: free)")
    axes.set_ylabel("measured F(tau), share of tokens")


def _stale(axes: Axes, table: pd.DataFrame) -> None:
    bars: list[tuple[str, float, Any]] = []
    for weights, name in ((SAMPLED, "same"), (AHEAD, "stale")):
        for engine, trainer in _PRECISIONS:
            row = table[
                (table["engine"] == engine) & (table["trainer"] == trainer) & (table["weights"] == weights)
            ].iloc[0]
            bars.append((f"{name}\n{engine}\n{trainer}", row["free"], row["replayed"]))
    places = range(len(bars))
    axes.bar([p - 0.2 for p in places], [free for _, free, _ in bars], 0.4, color=GREY, label="free")
    axes.bar(
        [p + 0.2 for p in places], [replayed for *_, replayed in bars], 0.4, color=BLUE, label="replayed"
    )
    axes.set_xticks(list(places), [label for label, *_ in bars], fontsize=6)
    axes.set_xlabel("weights, engine, trainer")
    axes.set_yscale("log")
    axes.set_ylabel("measured mean |d log p|, nats")
    axes.legend(loc="best", fontsize=6)


def _title(table: pd.DataFrame, *, flips: pd.DataFrame) -> str:
    def gap(weights: str) -> pd.Series:
        quick = (table["engine"] == "bf16") & (table["trainer"] == "fp32") & (table["weights"] == weights)
        return table[quick].iloc[0]

    same, ahead = gap(SAMPLED), gap(AHEAD)
    flipped = flips[
        (flips["layer"] == -1) & (flips["routing"] == "free") & (flips["weights"] == SAMPLED)
        & (flips["engine"] == "bf16") & (flips["trainer"] == "fp32")
    ].iloc[0]  # fmt: skip
    change = "takes" if same["saved_frac"] > 0 else "adds"
    return (
        f"{flips['num_layers'].iloc[0]} layers, bf16 engine: {flipped['flip_token_frac']:.0%} of tokens flip "
        f"somewhere, replay {change} {abs(same['saved_frac']):.0%} of the gap ({same['free']:.4f} to "
        f"{same['replayed']:.4f} nats); one step of staleness leaves {ahead['replayed']:.4f}"
    )
