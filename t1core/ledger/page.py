"""docs/LEDGER.md: a row a claim, with what stands beside it here. `t1 ledger` prints it."""

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from t1core.analysis import Interval
from t1core.ledger.computed import computed_numbers, settings_of_preset
from t1core.ledger.contradictions import contradictions
from t1core.ledger.measured import RESULTS, measured_numbers
from t1core.ledger.quoted import SOURCES, Quoted, read_quoted

LEDGER = Path("docs") / "LEDGER.md"
QUOTED = Path("figures") / "quoted"
STATUSES = ("measured", "computed", "quoted", "contradicted")
_TITLES = {
    "scores": "Scores and behaviour in evaluation",
    "training": "Training",
    "stability": "Token and routing fidelity, context",
    "infrastructure": "Infrastructure",
    "data": "Pools",
    "related": "Related work",
}


@dataclass(frozen=True)
class Row:
    """One claim. ours: our value with its interval and what it is of, or empty. agrees: None where nothing can be
    said."""

    key: str
    what: str
    quoted: str
    place: str
    status: str
    ours: str
    agrees: bool | None
    notebook: str


def ledger_rows(quoted: Quoted, *, results: Path = RESULTS) -> dict[str, list[Row]]:
    """Rows by table. KeyError for a computed, measured or contradicted number that no table quotes."""
    computed, measured = computed_numbers(quoted), measured_numbers(results)
    settings = settings_of_preset()
    disputed = {key: one.name for one in contradictions(quoted) for key in one.keys}
    for key in (*computed, *measured, *settings, *disputed):
        quoted.value(key)
    rows: dict[str, list[Row]] = {}
    for one in quoted.frame.itertuples():
        ours, agrees = [], None
        status = "quoted"
        if one.key in settings:
            value, setting = settings[one.key]
            agrees = _is_near(value, one.value)
            ours.append(f"preset t1-122b, {setting}: {_number(value)}")
        if one.key in computed:
            status, agrees = "computed", _is_near(computed[one.key].value, one.value)
            ours.append(f"{_number(computed[one.key].value)} ({computed[one.key].how})")
        if one.key in measured:
            status = "measured"
            told = measured[one.key]
            ours.append(f"{_with_interval(told.interval)}{_unit(told.unit)} ({told.of})")
        if one.key in disputed:
            status = "contradicted"
            ours.append(f"see: {disputed[one.key]}")
        notebook = f"notebooks/analyses/{one.shown}.ipynb" if one.shown else ""
        rows.setdefault(one.table, []).append(
            Row(
                one.key,
                one.what,
                f"{_number(one.value)}{_unit(one.unit)}{_at(one.x)}",
                f"{one.source}, {one.place}",
                status,
                "; ".join(ours),
                agrees,
                notebook,
            )
        )
    return rows


def ledger_page(*, folder: Path = QUOTED, results: Path = RESULTS) -> str:
    """The whole page as markdown."""
    quoted = read_quoted(folder)
    rows = ledger_rows(quoted, results=results)
    every = [row for part in rows.values() for row in part]
    counts = Counter(row.status for row in every)
    differs = [row for row in every if row.agrees is False]
    found = contradictions(quoted)
    sources = "; ".join(f"*{name}* is {told}" for name, told in SOURCES.items())
    lines = [
        "# Ledger",
        "",
        "Every number that the sources claim, with its place there and what stands beside it here. Made by `t1 "
        "ledger` from",
        "`figures/quoted`, from the code that computes a number, and from the kept results in `figures/results`.",
        "",
        f"{sources}.",
        "",
        "- **measured**: the same quantity in our runs and benchmarks, with a 95% interval where there are several "
        "values. Ours",
        "  is another scale: 1.4M parameters against 122 billion, practice tasks of a few turns, two cores or one "
        "H200. It neither",
        "  confirms nor denies the quoted number.",
        "- **computed**: our code, or arithmetic on other quoted numbers, gives it again (within 1%), or does not: "
        "*differs*.",
        "- **quoted**: nothing stands beside it. A setting may be in our preset of the published campaign, which "
        "never ran.",
        "- **contradicted**: the sources disagree about it; the first table says how.",
        "",
        f"{len(every)} claims: " + ", ".join(f"{counts[status]} {status}" for status in STATUSES) + ".",
        f"{len(differs)} that we compute, or set, differ by more than 1%.",
        "",
        "## Contradictions in the sources",
        "",
        "| about | one side | other side | what arithmetic says |",
        "|---|---|---|---|",
        *(_cells(one.name, *one.sides, one.verdict) for one in found),
    ]
    for table, title in _TITLES.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| claim | quoted | place | status | ours | notebook |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_line(row) for row in rows[table]]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    ours = f"**differs**: {row.ours}" if row.agrees is False else row.ours
    notebook = f"[{Path(row.notebook).stem}](../{row.notebook})" if row.notebook else ""
    claim = f"{row.what} <br> `{row.key}`"
    return _cells(claim, row.quoted, row.place, row.status, ours, notebook)


def _cells(*texts: str) -> str:
    """A row of a table; a bar in a cell would end it."""
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _is_near(value: float, quoted: float) -> bool:
    return math.isclose(value, quoted, rel_tol=0.01, abs_tol=1e-12)


def _number(value: float) -> str:
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.3g}"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.5g}"


def _with_interval(interval: Interval) -> str:
    if math.isnan(interval.low):
        return _number(interval.estimate)
    return f"{interval.estimate:.4g} [{interval.low:.4g}, {interval.high:.4g}]"


def _unit(unit: str) -> str:
    return f" {unit}" if unit and not unit.startswith("%") else unit


def _at(x: float) -> str:
    return "" if pd.isna(x) else f" (x = {x:g})"
