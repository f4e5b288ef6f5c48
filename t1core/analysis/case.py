"""One trial in numbers: how long it took, what it typed, and how much of that it typed before."""

from collections.abc import Mapping

import pandas as pd


def case_numbers(turns: pd.DataFrame) -> dict[str, float]:
    """turns, commands, repeated_frac (commands typed before in the same trial), parse errors, waits that ran out, and
    completion claims. `turns` is Run.turns of a trial."""
    typed = [command["keystrokes"].strip() for commands in turns["commands"] for command in commands]
    return {
        "turns": float(len(turns)),
        "commands": float(len(typed)),
        "repeated_frac": 1 - len(set(typed)) / len(typed) if typed else float("nan"),
        "parse_errors": float(turns["is_parse_error"].sum()),
        "waits_expired": float(turns["is_wait_expired"].sum()),
        "completion_claims": float(turns["is_completion_claim"].sum()),
    }


def case_table(cases: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """A row a trial, by its name."""
    return (
        pd.DataFrame({name: case_numbers(turns) for name, turns in cases.items()})
        .T.rename_axis("trial")
        .reset_index()
    )
