"""What pools are made of: categories, audit, and tests a task."""

import pandas as pd

from t1core.view.style import BLUE, MEASURED, QUOTED_BAR, VERMILION, Picture, finding, panels, styled


@styled
def figure_pool(categories: pd.DataFrame, *, weights: pd.DataFrame, counts: pd.DataFrame) -> Picture:
    """Categories (left), the audit's weights (right above) and outcome (right below), all quoted: what, value."""
    figure, (left, right) = panels(2, height=4.2, width_ratios=(1, 1.5))
    grid = right.get_subplotspec().subgridspec(2, 1, height_ratios=(8, 3.4))
    right.remove()
    above, below = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
    for panel, frame, label, form in (
        (left, categories, "tasks of T1-15k, %", "{:.2f}"),
        (above, weights, "weight in the audit", "{:g}"),
        (below, counts, "tasks", "{:,.0f}"),
    ):
        ordered = frame.sort_values("value", kind="stable").reset_index(drop=True)
        panel.barh(ordered.index, ordered["value"], height=0.65, **QUOTED_BAR)
        for place, value in enumerate(ordered["value"]):
            panel.text(value, place, " " + form.format(value), va="center", fontsize=7)
        panel.set_yticks(ordered.index, ordered["what"], fontsize=7)
        panel.set_xlim(0, ordered["value"].max() * 1.3)
        panel.set_xlabel(label, fontsize=8)
        panel.grid(axis="y", visible=False)
    verifier = weights.loc[weights["what"].str.contains("verifier"), "value"].sum()
    science = categories.loc[categories["what"] == "data science", "value"].iloc[0]
    finding(
        figure,
        f"Quoted: {verifier:g} of 100 points of the audit go to the verifier; data science, one of the fields where "
        f"failures concentrate, is {science:g}% of the pool",
    )
    return figure


@styled
def figure_tests_per_task(frame: pd.DataFrame, *, quoted: dict[str, float], scale: float) -> Picture:
    """Share of tasks with at most so many tests: ours as a line, the quoted median, p90 and maximum as points."""
    figure, axes = panels(1, height=3.0)
    axes.step(
        frame["num_tests"], 100 * frame["at_most_frac"], where="post", color=BLUE, linewidth=MEASURED["linewidth"],
        label="measured: practice tasks of a run",
    )  # fmt: skip
    axes.plot(
        [quoted["tests_median"], quoted["tests_p90"], quoted["tests_max"]], [50, 90, 100], linestyle=":", marker="s",
        markerfacecolor="white", color=VERMILION, label="quoted: T1-15k, median, p90, largest",
    )  # fmt: skip
    axes.axvline(scale, color="#333333", linewidth=0.8)
    axes.annotate(f"S = {scale:g}", (scale, 62), xytext=(3, 0), textcoords="offset points", fontsize=8)
    axes.set_xlim(0, 37)
    axes.set_ylim(0, 104)
    axes.set_xlabel("tests of a task")
    axes.set_ylabel("tasks with at most as many, %")
    axes.legend(loc="lower right")
    ours = int(frame.loc[frame["at_most_frac"] >= 0.9, "num_tests"].iloc[0])
    finding(
        figure,
        f"S = {scale:g} lies near the 90th percentile of the quoted pool ({quoted['tests_p90']:g} tests); of our "
        f"practice tasks nine in ten have at most {ours}, and none {scale:g}, so that no reward of ours reaches 1",
    )
    return figure
