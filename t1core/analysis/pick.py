"""Picks the trials worth reading first."""

import pandas as pd


def pick_trials(trials: pd.DataFrame) -> dict[str, str]:
    """Trial ids by why they are picked; a pick that no trial fits is absent.

    `solved`: the last solved training trial with the most turns. `unsolved`: the last graded training trial
    that passed some tests but not all, most turns first, else any unsolved one. `broken`: the last that
    something other than the model broke. Ties fall to the smaller id, so that the same run gives the same
    picks.
    """
    training = trials[trials["kind"] == "train"]
    graded = training[training["reward"].notna()]
    solved = graded["solved"].astype(bool)
    partly = graded[~solved & (graded["passed"] > 0)]
    pools = {
        "solved": graded[solved],
        "unsolved": partly if len(partly) else graded[~solved],
        "broken": training[training["outcome"] == "failed"],
    }
    order = {"by": ["step", "num_turns", "trial_id"], "ascending": [False, False, True]}
    return {
        why: str(pool.sort_values(**order).iloc[0]["trial_id"]) for why, pool in pools.items() if len(pool)
    }
