"""Texts that are nearly the same: exact Jaccard similarity of their runs of words, and long runs that two share.

    J(a, b) = |A n B| / |A u B|     A, B the sets of runs of `SHINGLE` words, lower case, punctuation left out

All pairs that share a run are compared by way of an index of runs, which is exact and meant for thousands of texts.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SHINGLE = 3
LONG = 13  # words in a row that two texts hardly share by chance; the usual test for contamination
MOST_TEXTS = 5000


@dataclass(frozen=True)
class Pair:
    """Two texts by name, and how alike they are; `shares_long` when `LONG` words in a row stand in both."""

    one: str
    other: str
    jaccard: float
    shares_long: bool


def shingles(text: str, *, size: int = SHINGLE) -> frozenset[tuple[str, ...]]:
    """Runs of `size` words; the whole text where it is shorter."""
    words = re.findall(r"\w+", text.lower())
    return frozenset(tuple(words[i : i + size]) for i in range(max(1, len(words) - size + 1)))


def alike_within(texts: Mapping[str, str], *, at_least: float) -> list[Pair]:
    """Pairs of texts with at least this similarity, most alike first. ValueError for more than MOST_TEXTS."""
    found = [pair for pair in _pairs(texts, texts) if pair.jaccard >= at_least and pair.one < pair.other]
    return sorted(found, key=lambda pair: (-pair.jaccard, pair.one, pair.other))


def closest(texts: Mapping[str, str], others: Mapping[str, str]) -> dict[str, Pair]:
    """For each text the most alike of the others, a shared long run before all; texts that share nothing are left
    out."""
    best: dict[str, Pair] = {}
    for pair in _pairs(texts, others):
        known = best.get(pair.one)
        if known is None or (pair.shares_long, pair.jaccard) > (known.shares_long, known.jaccard):
            best[pair.one] = pair
    return best


def _pairs(texts: Mapping[str, str], others: Mapping[str, str]) -> Iterator[Pair]:
    for what in (texts, others):
        if len(what) > MOST_TEXTS:
            raise ValueError(
                f"{len(what)} texts are more than the {MOST_TEXTS} that are compared pair by pair: take a sample"
            )
    runs = {name: shingles(text) for name, text in others.items()}
    long_runs = {name: shingles(text, size=LONG) for name, text in others.items()}
    holders = defaultdict(list)
    for name, own in runs.items():
        for run in own:
            holders[run].append(name)
    for name, text in texts.items():
        own, own_long = shingles(text), shingles(text, size=LONG)
        shared = Counter(other for run in own for other in holders.get(run, ()))
        for other, count in shared.items():
            jaccard = count / (len(own) + len(runs[other]) - count)
            long = any(len(run) == LONG for run in own_long & long_runs[other])
            yield Pair(name, other, jaccard, long)
