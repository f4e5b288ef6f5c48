"""Which trials a run kept: the store's table of each step, added up."""

import pandas as pd

_COUNTS = ["kept", "cut", "surplus", "continued"]


def selection_table(survival: pd.DataFrame) -> pd.DataFrame:
    """A row a family and predicted length over all steps: trials kept, cut, surplus and continued, the share kept of
    those that ended, and the mean weight that would undo the selection. `survival` is `Run.survival()`.
    """
    groups = survival.groupby(["family", "length"])
    table = groups[_COUNTS].sum()
    ended = table["kept"] + table["cut"] + table["surplus"]
    table["kept_share"] = table["kept"] / ended.where(ended > 0)
    table["mean_weight"] = groups["weight"].mean()
    return table.reset_index()
