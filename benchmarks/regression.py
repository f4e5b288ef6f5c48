"""Fresh results beside the kept ones: a line a comparison, with the change of its ratio.

    python -m benchmarks.stitch && python -m benchmarks.regression

Nothing fails by what it says: two runs on a shared machine differ, and only a person can tell why.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.kept import FRESH, KEPT


def comparisons(directory: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Every comparison of the results in a directory, with its run's parameters, by benchmark, what and against."""
    found = {}
    for path in sorted(directory.glob("*.json")):
        result = json.loads(path.read_text())
        for one in result.get("comparisons", ()):
            found[path.stem, one["what"], one["against"]] = one | {"parameters": result["parameters"]}
    return found


def table(kept: Path, fresh: Path) -> Iterator[str]:
    """Lines of the table. A result that was measured only once has a dash for the other ratio, and one measured with
    other parameters no change.
    """
    before, now = comparisons(kept), comparisons(fresh)
    yield f"{'benchmark':16} {'kept':>8} {'fresh':>8} {'change':>8}  {'target':>14}  what against what"
    for key in sorted(before.keys() | now.keys()):
        name, what, against = key
        old, new = before.get(key), now.get(key)
        one = new or old
        assert one is not None
        change = "-"
        if old and new and old["parameters"] != new["parameters"]:
            change = "other"
        elif old and new:
            better = (new["ratio"] / old["ratio"] - 1) * (1 if one["is_more_better"] else -1)
            change = f"{better:+.1%}"
        target = "-"
        if one["target"] is not None:
            bound, held = "<>"[one["is_more_better"]], "held" if one["holds"] else "missed"
            target = f"{bound}= {one['target']:g} {held}"
        yield f"{name:16} {_ratio(old):>8} {_ratio(new):>8} {change:>8}  {target:>14}  {what} against {against}"


def _ratio(one: dict[str, Any] | None) -> str:
    return "-" if one is None else f"{one['ratio']:.3f}"


if __name__ == "__main__":
    print("change: of the ratio, plus is better; other: measured with other parameters")
    for line in table(KEPT, FRESH):
        print(line)
