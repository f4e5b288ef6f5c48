"""How our figures look: what was measured, computed or quoted is told apart by line and marker, not by colour
alone.

Colours are Okabe and Ito's, which the colour-blind can tell apart; in grey, line styles and markers still do.
"""

import functools
import io
import textwrap
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from t1core.view.digest import data_digest

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#777777",
)
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, GREY)

MEASURED = {"linestyle": "-", "linewidth": 1.6, "marker": "o", "markersize": 3}
COMPUTED = {"linestyle": "--", "linewidth": 1.3, "marker": ""}
QUOTED = {"linestyle": ":", "linewidth": 1.3, "marker": "s", "markersize": 4, "markerfacecolor": "white"}
# Bars: measured are filled, computed are hatched, quoted are hollow.
MEASURED_BAR = {"edgecolor": "black", "linewidth": 0.4}
COMPUTED_BAR = {"hatch": "////", "edgecolor": "white", "linewidth": 0.4}
QUOTED_BAR = {"facecolor": "white", "edgecolor": "#333333", "linewidth": 1.0, "linestyle": ":"}

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "svg.hashsalt": "t1core",
    "svg.fonttype": "path",
    "text.usetex": False,
}
_TITLE_COLUMNS = 74


class Picture(Figure):
    """A Figure that needs no pyplot: notebooks show it, and its bytes are the same each time it is drawn.

    data_sha256: of all that it was drawn from.
    """

    data_sha256: str = ""

    def png(self) -> bytes:
        return self._drawn("png", {"Software": None})

    def svg(self) -> bytes:
        return self._drawn("svg", {"Date": None, "Creator": None})

    def _drawn(self, kind: str, metadata: dict[str, None]) -> bytes:
        buffer = io.BytesIO()
        with mpl.rc_context(_defaults()):
            self.savefig(buffer, format=kind, metadata=metadata)
        return buffer.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict[str, object]]:
        title = " ".join(self.get_suptitle().split())
        return self.png(), {"width": int(self.get_figwidth() * 100), "alt": title}


def styled(draw: Callable[..., Picture]) -> Callable[..., Picture]:
    """Decorates a figure function: it draws in our style, whatever the user's matplotlib is set to."""

    @functools.wraps(draw)
    def inner(*args: Any, **kwargs: Any) -> Picture:
        with mpl.rc_context(_defaults()):
            figure = draw(*args, **kwargs)
            # Laid out once: a second layout moves things by a hair, and the bytes would depend on what came before.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            figure.data_sha256 = data_digest(*args, **kwargs)
            return figure

    return inner


def picture(*, height: float = 3.4, rows: int = 1) -> tuple[Picture, Any]:
    """(figure, axes) at a column's width; several rows share the x axis."""
    figure = Picture(figsize=(6.6, height))
    return figure, figure.subplots(rows, 1, sharex=True)


def panels(columns: int, *, height: float = 3.4, **grid: Any) -> tuple[Picture, Any]:
    """(figure, axes side by side) at a column's width; `grid` goes to matplotlib's subplots."""
    figure = Picture(figsize=(6.6, height))
    return figure, figure.subplots(1, columns, **grid)


def finding(figure: Picture, text: str) -> None:
    """The title: the finding, wrapped, from the figure's left edge."""
    figure.suptitle(textwrap.fill(text, _TITLE_COLUMNS), x=0.01, ha="left", fontsize=10, fontweight="bold")


def rule(axes: Axes, y: float, label: str) -> None:
    """A thin horizontal line with its name at the right end."""
    axes.axhline(y, color="#333333", linewidth=0.8)
    axes.annotate(
        label, (1, y), xycoords=("axes fraction", "data"), xytext=(-2, 2), textcoords="offset points", ha="right",
        fontsize=7, color="#333333",
    )  # fmt: skip


def nothing_to_show(axes: Axes, why: str) -> None:
    """An empty frame of data still gives a figure, which says why it is empty."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color=GREY)


def _defaults() -> dict[str, Any]:
    # rcdefaults first: a user's own style would otherwise shine through and change the bytes.
    blocked = {"backend", "backend_fallback", "interactive", "toolbar", "timezone"}
    return {key: value for key, value in mpl.rcParamsDefault.items() if key not in blocked} | _RC
