"""A synthesis by round: how tasks grow, how many are kept, and how a fixed policy fares at them."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from t1core.pools.synthesis.table import Summary
from t1core.view.style import BLUE, COMPUTED, GREEN, GREY, MEASURED, ORANGE, Picture, finding, styled


@styled
def figure_synthesis(summary: Summary) -> Picture:
    """Three panels over rounds, the seeds at 0: sizes (medians over kept tasks), yield, pass rates."""
    table = summary.table
    figure = Picture(figsize=(6.6, 6.4))
    size, kept, passed = figure.subplots(3, 1, sharex=True)
    _sizes(size, table)
    made = table[table["round"] > 0]
    kept.bar(made["round"], made["tried"], 0.6, color="#dddddd", label="tried")
    kept.bar(made["round"], made["kept"], 0.6, color=BLUE, label="kept by the audit")
    kept.set_ylabel("measured tasks")
    kept.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    _rates(passed, table[table["num_tasks"] > 0])
    passed.xaxis.set_major_locator(MaxNLocator(integer=True))
    passed.set_xlabel("round (0: the seeds)")
    finding(figure, _title(table, error_rate=summary.policy["error_rate"]))
    return figure


def _sizes(axes: Axes, table: pd.DataFrame) -> None:
    columns = (
        ("solution_lines", "lines of the solution", BLUE),
        ("asserts", "asserts", ORANGE),
        ("tests", "tests", GREEN),
    )
    for column, label, color in columns:
        axes.plot(table["round"], table[column], color=color, label=label, **MEASURED)
    axes.set_yscale("log")
    axes.set_ylabel("measured medians")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0)


def _rates(axes: Axes, table: pd.DataFrame) -> None:
    lines = (
        ("tests_passed", "tests passed", GREEN),
        ("pass_at_k", "solved in any attempt", ORANGE),
        ("pass_at_1", "solved in one", BLUE),
    )
    for column, label, color in lines:
        axes.plot(table["round"], 100 * table[column], color=color, label=label, **MEASURED)
    axes.plot(table["round"], 100 * table["computed"], color=GREY, label="computed", **COMPUTED)
    axes.set_ylim(0, 102)
    axes.set_ylabel("%")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0)


def _title(table: pd.DataFrame, *, error_rate: float) -> str:
    first, made = table.iloc[0], table[(table["round"] > 0) & (table["kept"] > 0)]
    if made.empty:
        return "No candidate was kept"
    last = made.iloc[-1]
    tried = table[table["round"] > 0]["tried"].sum()
    told = (
        f"{int(made['kept'].sum())} of {int(tried)} candidates kept; in {int(last['round'])} rounds solutions grow "
        f"from {first['solution_lines']:g} to {last['solution_lines']:g} lines, asserts from {first['asserts']:g} to "
        f"{last['asserts']:g}"
    )
    if first["num_tasks"] and last["num_tasks"]:
        told += (
            f"; a script that forgets {error_rate:.0%} of commands solves {first['pass_at_1']:.0%}, then "
            f"{last['pass_at_1']:.0%}"
        )
    return told
