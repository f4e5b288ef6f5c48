"""Names: which metric a written name belongs to, the refusal of unknown ones, and their aliases."""

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from t1core.metrics.catalogue import CATALOGUE
from t1core.metrics.metric import Metric

_WILDCARD = re.compile(r"<[a-z_]+>")


def _pattern(metric: Metric) -> re.Pattern[str]:
    filler = "|".join(map(re.escape, metric.choices)) or r"[A-Za-z0-9_.\-]+"
    fixed = [re.escape(piece) for piece in _WILDCARD.split(metric.name)]
    return re.compile(f"({filler})".join(fixed))


_EXACT = {metric.name: metric for metric in CATALOGUE if not _WILDCARD.search(metric.name)}
_PATTERNS = [(_pattern(metric), metric) for metric in CATALOGUE if metric.name not in _EXACT]
_ALIASES = {alias: metric.name for metric in CATALOGUE for alias in metric.aliases}


@lru_cache(maxsize=4096)
def lookup(name: str) -> Metric:
    """The metric a concrete name belongs to. ValueError for an unknown name, with the nearest known ones."""
    if name in _EXACT:
        return _EXACT[name]
    for pattern, metric in _PATTERNS:
        if pattern.fullmatch(name):
            return metric
    if name in _ALIASES:
        raise ValueError(f"metric {name!r} is an alias: record {_ALIASES[name]!r}, under which it is stored")
    near = difflib.get_close_matches(name, [metric.name for metric in CATALOGUE], n=3, cutoff=0.4)
    hint = f"; nearest known: {', '.join(near)}" if near else ""
    raise ValueError(f"metric {name!r} is not defined{hint}. Define it in t1core/metrics/catalogue.py first")


def check_names(names: Iterable[str]) -> None:
    """ValueError at the first name that the catalogue doesn't know."""
    for name in names:
        lookup(name)


def with_aliases(values: Mapping[str, float]) -> dict[str, float]:
    """The same values plus one entry for each alias; for sinks whose readers search for a peer's name."""
    return dict(values) | {alias: value for name, value in values.items() for alias in lookup(name).aliases}
