"""Columns of the wide metrics frame under shorter names, steps that lack all of them left out."""

from collections.abc import Mapping

import pandas as pd


def columns_of(metrics: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """step and one column for each entry of `names` (metric to short name); NaN where a metric is absent.

    A step is left out where none of the metrics was recorded, and kept where one was recorded as NaN only if
    another has a value.
    """
    part = metrics.reindex(columns=list(names)).rename(columns=dict(names)).dropna(how="all")
    return part.rename_axis("step").reset_index()
