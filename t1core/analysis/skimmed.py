"""Which trials a step's skim lost, from the table of trials alone."""

import pandas as pd

from t1core.analysis.interval import mean_interval


def lost_by_family(trials: pd.DataFrame) -> pd.DataFrame:
    """A row a family: launched training trials that ended or were cut, the share of them lost (cut or surplus) with its
    95% interval, the mean turns and reward of those accepted. Most lost first."""
    ended = trials[(trials["kind"] == "train") & trials["outcome"].isin(("accepted", "cut", "surplus"))]
    rows = []
    for family, part in ended.groupby("family"):
        lost = mean_interval((part["outcome"] != "accepted").astype(float))
        kept = part[part["outcome"] == "accepted"]
        rows.append(
            (
                family,
                len(part),
                lost.estimate,
                lost.low,
                lost.high,
                kept["num_turns"].mean(),
                kept["reward"].mean(),
            )
        )
    frame = pd.DataFrame(rows, columns=["family", "trials", "lost_frac", "low", "high", "turns", "reward"])
    return frame.sort_values("lost_frac", ascending=False, kind="stable", ignore_index=True)
