"""The metric reference, made from the catalogue: as a page, and of one metric as text."""

from itertools import groupby

from t1core.metrics.catalogue import CATALOGUE
from t1core.metrics.metric import Metric, Reducer
from t1core.metrics.names import lookup

_HEAD = """# Metrics

Every number that a run records, as `t1core.metrics` defines it. `Run.open(path).metrics()` has a column for each, a
row a step. This page is made by `t1 metrics --page > docs/METRICS.md`, and a test holds it to the catalogue. A name in
angle brackets stands for one word; where only certain words can stand there, they are listed.

What a number is over a whole step, whatever the number of ranks:

{reducers}

What is undefined is NaN, never 0.
"""
_REDUCERS = {
    Reducer.MEAN: "`mean`: the sum of numerators over the sum of denominators, never a mean of means",
    Reducer.SUM: "`sum`: added up",
    Reducer.MAX: "`max`: the largest",
    Reducer.SAME: "`same`: computed from global moments, alike on every rank",
}


def reference_page() -> str:
    """The page, in Markdown, an area a section."""
    parts = [_HEAD.format(reducers="\n".join(f"- {_REDUCERS[reducer]}" for reducer in Reducer))]
    ordered = sorted(CATALOGUE, key=_area)
    for area, metrics in groupby(ordered, key=_area):
        parts.append(
            f"\n## {area}\n\n| name | unit | over a step | what it is | a healthy run |\n|---|---|---|---|---|\n"
        )
        parts += [_row(metric) for metric in metrics]
    return "".join(parts)


def describe(name: str) -> list[str]:
    """One metric in words. ValueError for a name that is none, with the nearest."""
    metric = lookup(name)
    lines = [f"{metric.name} ({metric.unit}, {metric.reducer}): {metric.meaning}", f"healthy: {metric.good}"]
    if metric.choices:
        lines.append(f"one of: {', '.join(metric.choices)}")
    if metric.aliases:
        lines.append(f"also known as: {', '.join(metric.aliases)}")
    return lines


def _area(metric: Metric) -> str:
    return metric.name.split("/")[0]


def _row(metric: Metric) -> str:
    meaning = metric.meaning
    if metric.choices:
        meaning += f". One of {', '.join(f'`{choice}`' for choice in metric.choices)}"
    if metric.aliases:
        meaning += f". Elsewhere {', '.join(f'`{alias}`' for alias in metric.aliases)}"
    cells = (f"`{metric.name}`", metric.unit, str(metric.reducer), meaning, metric.good)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
