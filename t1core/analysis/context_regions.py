"""Where a summary of the history can still be asked for, and where it is asked for."""

import pandas as pd

from t1core.agent.context import summary_budget


def summary_regions(*, window: int, asked: int, reserve: int, trigger_free: int, prompt: int) -> pd.DataFrame:
    """What bounds a prompt, in tokens, a row a bound: the window; the longest prompt that leaves `asked` tokens for a
    summary; the shortest prompt that makes a harness ask, which keeps `trigger_free` free; the longest prompt it asks
    with, after cutting turns until `reserve` tokens are free; the prompt seen; and our own latest trigger, for the same
    window, with answers and summaries of `asked` tokens.
    """
    ours = summary_budget(
        context_tokens=window,
        max_new_tokens=asked,
        context_margin_tokens=0,
        summary_tokens=asked,
        request_tokens=0,
    )
    rows = [
        ("ours", ours.trigger),
        ("longest feasible", window - asked),
        ("asked from", window - trigger_free),
        ("seen", prompt),
        ("asked up to", window - reserve),
        ("window", window),
    ]
    return pd.DataFrame(rows, columns=["bound", "tokens"])
