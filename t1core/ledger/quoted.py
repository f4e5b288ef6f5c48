"""Numbers that others published, from tables: a row a number, with its unit, what it is of, and its place in the
source."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

COLUMNS = ("key", "x", "value", "unit", "what", "source", "place", "shown")
SOURCES = {
    "paper": "arXiv 2609.11042",
    "blog": "the project page of T1",
    "review": "a review of T1 in Chinese",
    "rst": "arXiv 2608.05466 (RST)",
    "r3": "arXiv 2510.11370 (routing replay)",
    "sat": "arXiv 2607.18722 (SAT)",
}


@dataclass(frozen=True)
class Quoted:
    """Quoted numbers. `frame` has `COLUMNS`, with `key` as `<topic>/<name>`, and `topic` and `name` beside it."""

    frame: pd.DataFrame

    def value(self, key: str) -> float:
        """One number. KeyError names a key that no table has."""
        found = self.frame.loc[self.frame["key"] == key, "value"]
        if found.empty:
            raise KeyError(f"no quoted number {key!r}; figures/quoted has the tables")
        return float(found.iloc[0])

    def topic(self, topic: str) -> pd.DataFrame:
        """The numbers of one topic, in the order of the tables. KeyError names a topic that no table has."""
        part = self.frame[self.frame["topic"] == topic]
        if part.empty:
            raise KeyError(f"no quoted topic {topic!r}; figures/quoted has the tables")
        return part.reset_index(drop=True)

    def values(self, topic: str) -> dict[str, float]:
        """name: value of one topic."""
        part = self.topic(topic)
        return dict(zip(part["name"], part["value"], strict=True))


def read_quoted(folder: Path | str) -> Quoted:
    """All tables of a folder. ValueError names a table with other columns, a key given twice, a number that is none,
    and an unknown source."""
    paths = sorted(Path(folder).glob("*.csv"))
    if not paths:
        raise ValueError(f"{folder} holds no tables of quoted numbers (*.csv)")
    parts = []
    for path in paths:
        part = pd.read_csv(
            path, dtype={"key": str, "unit": str}, keep_default_na=False, na_values={"x": [""]}
        )
        if tuple(part.columns) != COLUMNS:
            raise ValueError(f"{path} has the columns {list(part.columns)}; expected {list(COLUMNS)}")
        part["value"] = pd.to_numeric(part["value"], errors="coerce")
        parts.append(part.assign(table=path.stem))
    frame = pd.concat(parts, ignore_index=True)
    twice = sorted(frame.loc[frame["key"].duplicated(), "key"])
    if twice:
        raise ValueError(f"{folder}: {', '.join(twice)} is given twice")
    wrong = frame[frame["value"].isna() | ~frame["source"].isin(SOURCES) | ~frame["key"].str.contains("/")]
    if len(wrong):
        row = wrong.iloc[0]
        raise ValueError(
            f"{folder}: {row['key']}: value {row['value']}, source {row['source']!r}; a row needs topic/name, a "
            f"number and one of {', '.join(SOURCES)}"
        )
    names = frame["key"].str.split("/", n=1, expand=True)
    return Quoted(frame.assign(topic=names[0], name=names[1]))
