"""A pool's tasks: how many tests they have."""

import numpy as np
import pandas as pd

from t1core.view.style import BLUE, GREY, ORANGE, Picture, finding, styled


@styled
def figure_pool_tests(tasks: pd.DataFrame, *, scale: int) -> Picture:
    """Tasks whose tests are counted by their number, with median, 90th percentile and `scale`, the suggested scale of
    the dense reward. `tasks` is `t1core.pools.report.task_frame`'s."""
    counted = tasks.loc[tasks["verifier"] == "counted", "num_tests"].to_numpy()
    median, p90 = np.percentile(counted, [50, 90])
    figure = Picture(figsize=(6.0, 3.0))
    axes = figure.subplots()
    axes.hist(counted, bins=np.arange(0.5, counted.max() + 1.5), color=BLUE)
    for place, colour, told in (
        (median, GREY, f"median {median:g}"),
        (p90, ORANGE, f"90th percentile {p90:g}"),
        (scale, "#333333", f"suggested scale {scale}"),
    ):
        axes.axvline(place, color=colour, label=told)
    axes.set_xlabel("tests of a task")
    axes.set_ylabel("tasks, counted")
    axes.legend()
    finding(
        figure,
        f"Nine of ten tasks have at most {p90:g} tests: scale {scale} keeps their reward below about 1",
    )
    return figure
