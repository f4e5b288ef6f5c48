"""How a call's prompt relates to the tokens of an earlier call: strict, normalized, retokenized, or none of
these.

With p, a the earlier call's prompt and sampled ids, and q the later prompt (T1 section 4.2):
- strict: p || a is a prefix of q;
- normalized: p without its last s tokens || a without its last u tokens is a prefix of q, s + u as small as
  possible over s in 0..96 and u in 0..16 (ties: smaller u). Ours also asks that at least half of the sampled
  tokens stay: with all of a short turn dropped, any history would match anything;
- retokenized: p is a prefix of q and a stretch of q after it has the text of a.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from t1core.records import PrefixRelation

MAX_PROMPT_TRIM = 96  # the shared template suffix, or generation prompt
MAX_OUTPUT_TRIM = 16  # stop and glue tokens

TextOf = Callable[[np.ndarray], str]


@dataclass(frozen=True)
class Match:
    """`matched` tokens of the later prompt stand for the earlier call; what follows them is new context."""

    relation: PrefixRelation
    matched: int
    prompt_trim: int = 0
    output_trim: int = 0


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    first = int(differ.argmax()) if n else 0
    return first if n and differ[first] else n


def match_strict(prompt: np.ndarray, sampled: np.ndarray, *, later: np.ndarray) -> Match | None:
    p, total = len(prompt), len(prompt) + len(sampled)
    if (
        len(later) < total
        or not np.array_equal(later[p:total], sampled)
        or not np.array_equal(later[:p], prompt)
    ):
        return None
    return Match(PrefixRelation.STRICT, matched=total)


def match_normalized(prompt: np.ndarray, sampled: np.ndarray, *, later: np.ndarray) -> Match | None:
    """Minimise s + u. For each s the smallest u follows from one common prefix, and most s fall to one
    comparison.
    """
    p, a = len(prompt), len(sampled)
    smallest_s = p - common_prefix(prompt, later)
    trims = np.arange(smallest_s, min(MAX_PROMPT_TRIM, p) + 1)
    trims = trims[p - trims < len(later)]
    trims = trims[later[p - trims] == sampled[0]] if a else trims[:0]
    best: Match | None = None
    for s in trims.tolist():
        if best is not None and s > best.prompt_trim + best.output_trim:
            break
        u = a - common_prefix(sampled, later[p - s :])
        if u > min(MAX_OUTPUT_TRIM, a // 2):
            continue
        if best is None or (s + u, u) < (best.prompt_trim + best.output_trim, best.output_trim):
            best = Match(PrefixRelation.NORMALIZED, matched=p - s + a - u, prompt_trim=s, output_trim=u)
    return best


def match_retokenized(
    prompt: np.ndarray, sampled: np.ndarray, *, later: np.ndarray, text_of: TextOf
) -> Match | None:
    """Find e with text_of(later[len(prompt):e]) == text_of(sampled), by bisection on the text's length."""
    b, text = len(prompt), text_of(sampled)
    if not text or common_prefix(prompt, later) < b:
        return None
    low, high = b, len(later)
    while low < high:
        middle = (low + high) // 2
        if len(text_of(later[b:middle])) < len(text):
            low = middle + 1
        else:
            high = middle
    # a cut inside a character decodes to a placeholder of other length, so the bisection may stop a few
    # tokens early
    for end in range(low, min(low + 8, len(later)) + 1):
        if text_of(later[b:end]) == text:
            return Match(PrefixRelation.RETOKENIZED, matched=end)
    return None


def match(
    prompt: np.ndarray,
    sampled: np.ndarray,
    *,
    later: np.ndarray,
    relation: PrefixRelation,
    text_of: TextOf | None,
) -> Match | None:
    """The match of one relation, or None. Without `text_of` the retokenized case never holds."""
    if relation is PrefixRelation.STRICT:
        return match_strict(prompt, sampled, later=later)
    if relation is PrefixRelation.NORMALIZED:
        return match_normalized(prompt, sampled, later=later)
    if relation is PrefixRelation.RETOKENIZED and text_of is not None:
        return match_retokenized(prompt, sampled, later=later, text_of=text_of)
    return None
