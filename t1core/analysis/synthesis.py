"""What must hold of a synthesis, whatever made its tasks."""

from t1core.analysis.checks import Check
from t1core.pools.synthesis.table import Summary


def check_synthesis(summary: Summary) -> list[Check]:
    """Claims about a kept synthesis: the counts fit, longer tasks came of shorter ones, and fared worse."""
    table = summary.table
    rounds = table[(table["round"] > 0) & (table["kept"] > 0)]
    fared = table[table["num_tasks"] > 0]
    first, last = table.iloc[0], rounds.iloc[-1] if len(rounds) else table.iloc[0]
    return [
        Check(
            "no round keeps more than it tried",
            bool((table["kept"] <= table["tried"]).all()),
            f"{int(rounds['kept'].sum())} of {int(table[table['round'] > 0]['tried'].sum())} kept",
        ),
        Check(
            "solving a task once in k attempts is no rarer than solving it in one, nor than passing its tests",
            bool(
                (fared["pass_at_k"] >= fared["pass_at_1"] - 1e-9).all()
                and (fared["tests_passed"] >= fared["pass_at_1"] - 1e-9).all()
            ),
            f"{len(fared)} rounds attempted",
        ),
        Check(
            "the last round's solutions are longer than the seeds'",
            bool(last["solution_lines"] > first["solution_lines"]),
            f"{first['solution_lines']:g} lines to {last['solution_lines']:g}",
        ),
        Check(
            "and have more asserts",
            bool(last["asserts"] > first["asserts"]),
            f"{first['asserts']:g} to {last['asserts']:g}",
        ),
    ]
